"""All CUDA rules, family by family, and their selection by name."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from kernelassay.errors import unknown_name
from kernelassay.mutation import (
    arithmetic,
    boundary,
    indexing,
    precision,
    semantic,
    synchronization,
)
from kernelassay.mutation.rule import FAMILIES, Rule

#: The catalogue in its fixed order, which is the order of mutants.
RULES: tuple[Rule, ...] = (
    *arithmetic.RULES,
    *indexing.RULES,
    *semantic.RULES,
    *boundary.RULES,
    *synchronization.RULES,
    *precision.RULES,
)

_BY_ID = {rule.id: rule for rule in RULES}


def rule(name: str) -> Rule:
    """The rule with the id ``name``; an unknown one raises ``UsageError``."""
    if name not in _BY_ID:
        raise unknown_name("mutation rule", name, _BY_ID)
    return _BY_ID[name]


def select(patterns: Iterable[str]) -> tuple[Rule, ...]:
    """The rules that match any pattern, in catalogue order.

    A pattern is a rule id, a family, or a glob over ids (``fp16-*``). One that matches nothing
    raises ``UsageError``.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        matched = {r.id for r in RULES if r.family == pattern or fnmatchcase(r.id, pattern)}
        if not matched:
            raise unknown_name("mutation rule", pattern, [*_BY_ID, *FAMILIES])
        chosen |= matched
    return tuple(r for r in RULES if r.id in chosen)
