"""The semantic family of Triton kernels."""

from __future__ import annotations

from kernelassay.mutation.rule import Rule
from kernelassay.mutation.triton.semantic_functions import FUNCTIONS
from kernelassay.mutation.triton.semantic_reduction import REDUCTION_RULES
from kernelassay.mutation.triton.semantic_terms import TERMS

RULES: tuple[Rule, ...] = (*REDUCTION_RULES, *FUNCTIONS, *TERMS)
