"""The boundary family of Triton kernels."""

from __future__ import annotations

from kernelassay.mutation.rule import Rule
from kernelassay.mutation.triton.boundary_loops import LOOPS
from kernelassay.mutation.triton.boundary_masks import MASKS

RULES: tuple[Rule, ...] = (*MASKS, *LOOPS)
