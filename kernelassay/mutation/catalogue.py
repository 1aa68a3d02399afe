"""All CUDA rules, family by family, and how rules of any language are selected by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def rule(name: str, rules: Sequence[Rule] = RULES) -> Rule:
    """The rule with the id ``name``; an unknown one raises ``UsageError``."""
    by_id = {rule.id: rule for rule in rules}
    if name not in by_id:
        raise unknown_name("mutation rule", name, by_id)
    return by_id[name]


def select(patterns: Iterable[str], rules: Sequence[Rule] = RULES) -> tuple[Rule, ...]:
    """Those of ``rules`` that match any pattern, in catalogue order.

    A pattern is a rule id, a family, or a glob over ids (``fp16-*``). One that matches nothing
    raises ``UsageError``.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        matched = {r.id for r in rules if r.family == pattern or fnmatchcase(r.id, pattern)}
        if not matched:
            raise unknown_name("mutation rule", pattern, [*(r.id for r in rules), *FAMILIES])
        chosen |= matched
    return tuple(r for r in rules if r.id in chosen)
