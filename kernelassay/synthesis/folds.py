"""Mutants held out: a suite is chosen on some and scored on the others, each mutant once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping

from kernelassay.synthesis.pool import Mutant

HALVES = 2


def half(name: str, salt: str = "") -> str:
    """Which of two halves a name falls in, by its hash: the same on every machine.

    Another ``salt`` divides otherwise.
    """
    digest = hashlib.blake2b(f"half{salt}:{name}".encode(), digest_size=8).digest()
    return f"half {int.from_bytes(digest, 'little') % HALVES + 1}"


HELD_OUT: Mapping[str, Callable[[Mutant, str], str]] = {
    "id": lambda mutant, salt: half(mutant.id, salt),
    "rule": lambda mutant, salt: half(mutant.rule, salt),
    "family": lambda mutant, salt: mutant.family,
    "problem": lambda mutant, salt: mutant.problem,
}
"""Ways to hold out, with the part that a mutant belongs to, given a salt of halves.

Of ids and rules two halves by hash, of families and problems each in turn: what is scored on a part
is chosen on all other parts.
"""


def parts(mutants: Iterable[Mutant], held_out: str, salt: str = "") -> tuple[str, ...]:
    """The parts that mutants fall in, sorted."""
    return tuple(sorted({HELD_OUT[held_out](mutant, salt) for mutant in mutants}))
