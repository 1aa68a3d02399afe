"""Which mutants are proven wrong, and the buckets that all of them fall in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelassay.cell import OK
from kernelassay.illusion.grids import Grid
from kernelassay.illusion.oracle import Rule
from kernelassay.illusion.trials import MUTANT, Trials
from kernelassay.oracle import Bools

STATUSES = ("stillborn", "equivalent", "duplicate", "distinct")

PROOF = Rule("matched")
"""What proves a mutant wrong, whatever rule is scored: a laxer one must not have fewer to find."""


def proofs(grid: Grid) -> Bools:
    """Where a fair case proves a kernel wrong, under :data:`PROOF`. Shape [kernels, cases].

    An element that is never written is wrong, whatever a checker makes of it.
    """
    wrong = grid.fails(PROOF) | (grid.columns["unwritten"] > 0)
    return np.asarray(wrong & grid.fair(PROOF))


def witnessed(grid: Grid) -> Bools:
    """Which kernels some fair case proves wrong. Shape [kernels]."""
    return np.asarray(proofs(grid).any(axis=1) & ~grid.unjudged)


def stops(grid: Grid) -> Counter[str]:
    """Witnessed mutants that no wrong output proves wrong, by the outcome that first does."""
    proving, found = proofs(grid), Counter[str]()
    for at in np.flatnonzero(grid.mutants):
        outcomes = grid.columns["outcome"][at][proving[at]]
        if outcomes.size and not (outcomes == OK).any():
            found[outcomes[0]] += 1
    return found


@dataclass(frozen=True, slots=True)
class Buckets:
    """Every generated mutant is in exactly one bucket.

    ``flagged`` ones have a sanitizer finding and no wrong output; ``unjudged`` ones do something
    that the device refuses to compute, such as bfloat16 in Triton's interpreter. ``stopped`` counts
    those of the witnessed that have no output wherever they are proven wrong, by how their first
    run ended.
    """

    generated: int
    stillborn: int
    equivalent: int
    duplicate: int
    distinct: int
    witnessed: int
    flagged: int
    unobserved: int
    unjudged: int
    stopped: Mapping[str, int]

    def check(self) -> None:
        """Raises ``AssertionError`` if the buckets do not close."""
        named = self.stillborn + self.equivalent + self.duplicate + self.distinct
        assert self.generated == named, self
        judged = self.witnessed + self.flagged + self.unobserved
        assert self.distinct == judged + self.unjudged, self
        assert sum(self.stopped.values()) <= self.witnessed, self


def buckets(trials: Trials, made: Sequence[Grid], proven: Sequence[Bools]) -> Buckets:
    """The buckets of all mutants of a session."""
    counts: Counter[str] = Counter()
    stopped: Counter[str] = Counter()
    for grid, wrong in zip(made, proven, strict=True):
        counts.update(str(one["status"]) for one in trials.population(grid.operator))
        stopped.update(stops(grid))
        flagged = np.asarray(grid.columns["flagged"].any(axis=1))
        for at in np.flatnonzero(grid.mutants):
            unproven = "flagged" if flagged[at] else "unobserved"
            counts["witnessed" if wrong[at] else unproven] += 1
        counts["unjudged"] += grid.of(MUTANT).size - int(grid.mutants.sum())
    made_of = {name: counts[name] for name in STATUSES}
    found = Buckets(
        generated=sum(made_of.values()),
        **made_of,
        witnessed=counts["witnessed"],
        flagged=counts["flagged"],
        unobserved=counts["unobserved"],
        unjudged=counts["unjudged"],
        stopped=dict(sorted(stopped.items())),
    )
    found.check()
    return found
