"""A mutation rule is one object; adding a rule is adding one entry to a family module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelassay.mutation.tree import KernelTree

FAMILIES = ("arithmetic", "indexing", "semantic", "boundary", "synchronization", "precision")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the bytes ``[start, end)`` of the source by ``text``; nothing else changes."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mutant of a source: edits in ascending order that do not overlap."""

    edits: tuple[Edit, ...]


Find = Callable[["KernelTree"], Iterable[Mutation]]
"""What finds the sites of a rule: every mutation of a source, in order."""


@dataclass(frozen=True, slots=True)
class Example:
    """One source and *all* the texts the rule turns it into, in order."""

    before: str
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A mutation operator.

    ``find`` yields the same mutations, in source order, on every machine. ``what`` says in one
    line what is rewritten; ``bug`` names the real mistake it stands for.
    """

    id: str
    family: str
    what: str
    bug: str
    find: Find
    examples: tuple[Example, ...]
