"""Arithmetic faults: the classical operator mutations, on values only.

Integer expressions that feed an address belong to the Indexing family, bound tests to the
Boundary family; the rules here leave both alone. A rewrite that cannot change a value (``x * 1``
to ``x / 1``), or that another rule here makes with other characters, is not made.
"""

from __future__ import annotations

from kernelassay.mutation.arithmetic_operators import RULES as OPERATORS
from kernelassay.mutation.arithmetic_values import RULES as VALUES
from kernelassay.mutation.rule import Rule

RULES: tuple[Rule, ...] = (*OPERATORS, *VALUES)
