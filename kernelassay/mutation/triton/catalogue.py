"""All rules of Triton kernels, family by family."""

from __future__ import annotations

from kernelassay.mutation.rule import Rule
from kernelassay.mutation.triton import (
    arithmetic,
    benign,
    boundary,
    indexing,
    precision,
    semantic,
    synchronization,
)

#: The catalogue in its fixed order, which is the order of mutants.
RULES: tuple[Rule, ...] = (
    *arithmetic.RULES,
    *indexing.RULES,
    *semantic.RULES,
    *boundary.RULES,
    *synchronization.RULES,
    *precision.RULES,
)

#: Rewrites after which a correct kernel is still correct.
BENIGN: tuple[Rule, ...] = benign.BENIGN
