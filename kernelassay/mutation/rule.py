"""A mutation rule is one object; adding a rule is adding one entry to a family module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

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


def mutation(*edits: Edit) -> Mutation:
    """One mutant of these edits, put into ascending order."""
    return Mutation(tuple(sorted(edits, key=lambda edit: (edit.start, edit.end))))


class Tree(Protocol):
    """What is asked of a parsed source of any language; a rule asks for more of its own one's."""

    data: bytes


Find = Callable[[Any], Iterable[Mutation]]
"""What finds the sites of a rule in a tree of its language: every mutation, in order."""


@dataclass(frozen=True, slots=True)
class Example:
    """One source and *all* the texts the rule turns it into, in order."""

    before: str
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A mutation operator.

    ``find`` yields the same mutations, in source order, on every machine; it gets the tree of
    ``language`` (:mod:`kernelassay.mutation.language`). ``what`` says in one line what is
    rewritten; ``bug`` names the real mistake it stands for. No two rules share an id, whatever
    their languages.
    """

    id: str
    family: str
    what: str
    bug: str
    find: Find
    examples: tuple[Example, ...]
    language: str = "cuda"
