"""The semantic family of Triton kernels."""

from __future__ import annotations

from kernelassay.mutation.rule import Rule
from kernelassay.mutation.triton.semantic_formula import FORMULA_RULES
from kernelassay.mutation.triton.semantic_reduction import REDUCTION_RULES

RULES: tuple[Rule, ...] = (*REDUCTION_RULES, *FORMULA_RULES)
