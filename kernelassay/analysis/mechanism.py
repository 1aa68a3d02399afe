"""Why witnessed mutants survive a protocol: the step (RIPR) that fails on all of its inputs.

Every witnessed mutant that a protocol misses has one mechanism. It is told from the cells of that
protocol's inputs alone, which a lazy run measures all of where it does not reject; where implied
cells decide, the mutant is open, and is counted as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelassay.analysis.score import MutantFacts, ProtocolScore, Share
from kernelassay.analysis.verdicts import rejected_relaxed
from kernelassay.matrix import Bools, ProblemMatrix
from kernelassay.mutation.rule import FAMILIES
from kernelassay.protocols import Protocol

NOT_INFECTED, MASKED, TOLERATED = "not infected", "masked", "tolerated"
MECHANISMS = (NOT_INFECTED, MASKED, TOLERATED)
"""No input changes the kernel's own output; one does, but never the final output; the final output
changes, by less than the rule sees."""

REJECTED, OPEN, LOST, UNTOLD = "rejected", "open", "lost", "untold"
"""Fates of mutants that are not accepted: ``open`` where implied cells decide, ``lost`` where the
tool lost one, ``untold`` where what is kept of an output does not decide the protocol's rule."""


def mechanisms(matrix: ProblemMatrix, columns: NDArray[np.intp], view: str) -> NDArray[np.str_]:
    """By row, why a candidate that is accepted on all of some inputs is. [candidates].

    ``view`` is the protocol's: one that poisons outputs sees the unwritten elements that reach the
    final output, too.
    """
    infected = matrix.columns["infected"][:, columns] == 1
    differs = matrix.columns["propagated"][:, columns] == 1
    if view == "poisoned":
        seen, poisoned = (matrix.columns[f"{v}_out_nan"][:, columns] for v in ("seen", view))
        differs |= infected & (seen != poisoned)
    failing = [~infected.any(axis=1), ~differs.any(axis=1)]
    return np.asarray(np.select(failing, [NOT_INFECTED, MASKED], TOLERATED))


def fates(matrix: ProblemMatrix, protocol: Protocol) -> NDArray[np.str_]:
    """By row, what a protocol makes of a candidate: a mechanism if it accepts it. [candidates]."""
    columns = matrix.positions(protocol)

    def anywhere(cells: Bools) -> Bools:
        return np.asarray(cells[:, columns].any(axis=1))

    cells = (matrix.rejected_by(protocol), matrix.implied, matrix.lost, matrix.open_to(protocol))
    accepted = mechanisms(matrix, columns, protocol.view)
    fate = [REJECTED, OPEN, LOST, UNTOLD]
    return np.asarray(np.select([anywhere(c) for c in cells], fate, accepted))


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of ``witnessed`` mutants under a protocol; the shares are of its survivors.

    ``set_aside`` and ``lost`` are as in :class:`ProtocolScore`.
    """

    witnessed: int
    detected: int
    set_aside: int
    lost: int
    survivors: int
    not_infected: Share
    masked: Share
    tolerated: Share
    open: Share

    @classmethod
    def of(cls, found: Iterable[str | None]) -> Tally:
        """Of fates, ``None`` for a mutant that is set aside; asserts that it closes."""
        counts = Counter(found)
        survivors = sum(counts[name] for name in (*MECHANISMS, OPEN))
        shares = (Share(counts[name], survivors) for name in (*MECHANISMS, OPEN))
        places = (counts[REJECTED], counts[None], counts[LOST] + counts[UNTOLD], survivors)
        assert sum(places) == counts.total(), counts  # each mutant has one of these fates
        return cls(counts.total(), *places, *shares)

    @property
    def mechanisms(self) -> Mapping[str, Share]:
        """The shares of the survivors, which add up to one, by name."""
        shares = (self.not_infected, self.masked, self.tolerated, self.open)
        return dict(zip((*MECHANISMS, OPEN), shares, strict=True))


@dataclass(frozen=True, slots=True)
class Survival:
    """The mechanisms of all survivors of one protocol, by family and by rule."""

    all: Tally
    by_family: Mapping[str, Tally]
    by_rule: Mapping[str, Tally]

    def check(self, score: ProtocolScore) -> None:
        """Assert that groups add up, and that these are the mutants that the score misses."""
        for groups in (self.by_family, self.by_rule):
            for field in ("witnessed", "detected", "set_aside", "lost", "survivors"):
                parts = [getattr(tally, field) for tally in groups.values()]
                assert sum(parts) == getattr(self.all, field), (score.protocol, field)
            for name, share in self.all.mechanisms.items():
                shares = [tally.mechanisms[name] for tally in groups.values()]
                summed = Share(sum(s.count for s in shares), sum(s.total for s in shares))
                assert summed == share, (score.protocol, name)
        scored = score.detection
        places = (scored.count, scored.total - scored.count, score.set_aside, score.lost)
        mine = (self.all.detected, self.all.survivors, self.all.set_aside, self.all.lost)
        assert mine == places, (score.protocol, mine, places)


def survival(
    matrices: Sequence[ProblemMatrix], facts: Sequence[MutantFacts], protocol: Protocol
) -> Survival:
    """Why the witnessed mutants that a protocol misses survive it; ``facts`` tell who is witnessed.

    Raises :class:`SessionError` if inputs of the protocol are missing.
    """
    unfair = rejected_relaxed(matrices, protocol)
    rows = {m.problem: dict(zip(m.candidates, fates(m, protocol), strict=True)) for m in matrices}
    found: list[tuple[MutantFacts, str | None]] = [
        (f, None if (f.problem, f.call, f.style) in unfair else str(rows[f.problem][f.id]))
        for f in facts
        if f.witnessed
    ]

    def tallies(key: Callable[[MutantFacts], str], order: Sequence[str] = ()) -> dict[str, Tally]:
        groups: dict[str, list[str | None]] = {name: [] for name in order}
        for fact, fate in found:
            groups.setdefault(key(fact), []).append(fate)
        return {name: Tally.of(group) for name, group in groups.items()}

    return Survival(
        all=Tally.of(fate for _, fate in found),
        by_family=tallies(lambda f: f.family, FAMILIES),
        by_rule=tallies(lambda f: f.rule),
    )
