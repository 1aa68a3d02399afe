"""The precision family of Triton kernels: where numbers are rounded, and to what."""

from __future__ import annotations

from kernelassay.mutation.rule import Rule
from kernelassay.mutation.triton.precision_operations import OPERATIONS
from kernelassay.mutation.triton.precision_values import VALUES

RULES: tuple[Rule, ...] = (*VALUES, *OPERATIONS)
