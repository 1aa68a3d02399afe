"""How two protocols differ on the same mutants and the same correct kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kernelassay.analysis.decompose import Decomposition, decompose
from kernelassay.analysis.ground import (
    Aside,
    Candidates,
    Ground,
    ground,
    rejected,
    require_matches,
)
from kernelassay.analysis.score import Share, band, mutant_facts, resampled
from kernelassay.analysis.sweep import Sweep, sweep
from kernelassay.errors import NothingToTestError
from kernelassay.joined import JoinedSessions
from kernelassay.matrix import ProblemMatrix, load
from kernelassay.protocols import Protocol
from kernelassay.session import Session


@dataclass(frozen=True, slots=True)
class Paired:
    """Two protocols on the same candidates: how many both reject, one alone, or neither.

    ``band`` is the 90% band of the difference of shares (second less first) when as many problems
    are drawn with replacement; None without candidates.
    """

    both: int
    only_first: int
    only_second: int
    neither: int
    band: tuple[float, float] | None

    @property
    def total(self) -> int:
        """All candidates."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def first(self) -> Share:
        """What the first rejects."""
        return Share(self.both + self.only_first, self.total)

    @property
    def second(self) -> Share:
        """What the second rejects."""
        return Share(self.both + self.only_second, self.total)

    @property
    def p_value(self) -> float:
        """The exact McNemar test, which takes candidates as independent."""
        return mcnemar(self.only_first, self.only_second)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        gained = self.only_second - self.only_first
        return {
            **asdict(self),
            "total": self.total,
            "first": {**asdict(self.first), "rate": self.first.rate},
            "second": {**asdict(self.second), "rate": self.second.rate},
            "difference": gained / self.total if self.total else None,
            "p_value": self.p_value,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two protocols where both are scored: ``aside`` has the other problems.

    ``false_rejection`` is over benign variants, ``originals`` over the kernels under mutation.
    """

    first: Protocol
    second: Protocol
    ground: Ground
    detection: Paired
    false_rejection: Paired
    originals: Paired
    decomposition: Decomposition

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "first": self.first.name,
            "second": self.second.name,
            "problems": list(self.ground.problems),
            "aside": [asdict(aside) for aside in self.ground.aside],
            "set_aside": self.ground.set_aside,
            "lost": self.ground.lost,
            "detection": self.detection.to_json(),
            "false_rejection": self.false_rejection.to_json(),
            "originals": self.originals.to_json(),
            "decomposition": self.decomposition.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """All that ``kernelassay compare`` tells; witnesses count at ``tolerance``."""

    session: str
    tolerance: float
    problems: int
    unfinished: tuple[str, ...]
    official_shapes: bool
    comparison: Comparison | None
    sweeps: tuple[Sweep, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "session": self.session,
            "tolerance": self.tolerance,
            "problems": self.problems,
            "unfinished": list(self.unfinished),
            "official_shapes": self.official_shapes,
            "comparison": None if self.comparison is None else self.comparison.to_json(),
            "sweeps": [one.to_json() for one in self.sweeps],
        }


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value: how surely a fair coin splits at least as unevenly."""
    tosses = only_first + only_second
    term, tail = 1, 0
    for heads in range(min(only_first, only_second) + 1):
        tail += term
        term = term * (tosses - heads) // (heads + 1)
    return min(1.0, 2 * tail / 2**tosses)


def paired(
    matrices: Sequence[ProblemMatrix], candidates: Candidates, first: Protocol, second: Protocol
) -> Paired:
    """Two protocols on the same candidates."""
    a, b = (rejected(matrices, candidates, protocol) for protocol in (first, second))
    totals = Counter(problem for problem, _ in candidates)
    gains: Counter[str] = Counter()
    for (problem, _), gain in zip(candidates, b.astype(int) - a.astype(int), strict=True):
        gains[problem] += int(gain)
    drawn = resampled(((gains[name], total) for name, total in totals.items()), len(totals))
    return Paired(
        both=int(np.count_nonzero(a & b)),
        only_first=int(np.count_nonzero(a & ~b)),
        only_second=int(np.count_nonzero(~a & b)),
        neither=int(np.count_nonzero(~a & ~b)),
        band=None if drawn is None else band(drawn),
    )


def compare(
    matrices: Sequence[ProblemMatrix], first: Protocol, second: Protocol, tolerance: float
) -> Comparison:
    """Compare two protocols on the mutants that are witnessed at ``tolerance``.

    Raises :class:`SessionError` if cells that were not measured leave a mutant, or a verdict of the
    two, open, :class:`NothingToTestError` if no problem is left.
    """
    facts = mutant_facts(matrices, (), tolerance)
    shared = ground(matrices, facts, (first, second))
    _require_problems(shared.problems, shared.aside)
    return Comparison(
        first=first,
        second=second,
        ground=shared,
        detection=paired(shared.matrices, shared.mutants, first, second),
        false_rejection=paired(shared.matrices, shared.variants, first, second),
        originals=paired(shared.matrices, shared.originals, first, second),
        decomposition=decompose(shared.matrices, facts, first, second),
    )


def compare_sessions(
    sessions: Sequence[Session],
    protocols: Sequence[Protocol],
    tolerance: float,
    *,
    partial: bool = False,
    ladder: Iterable[float] = (),
) -> Compared:
    """Compare two protocols, and sweep each over the tolerances of a ladder.

    With ``partial`` on the finished problems. A single protocol is swept alone. Raises as
    :class:`JoinedSessions`, :func:`matrix.load`, :func:`mutant_facts` and :func:`compare`.
    """
    session = JoinedSessions(sessions)
    matrices = load(session, partial=partial)
    require_matches(matrices, protocols)
    comparison = None
    if len(protocols) == 2:
        comparison = compare(matrices, protocols[0], protocols[1], tolerance)
    sweeps: list[Sweep] = []
    steps = tuple(ladder)
    if steps:
        facts = mutant_facts(matrices, (), tolerance)
        sweeps = [sweep(matrices, facts, protocol, steps) for protocol in protocols]
        for one in sweeps:
            _require_problems(one.problems, one.aside)
    return Compared(
        session=session.name,
        tolerance=tolerance,
        problems=len(matrices),
        unfinished=tuple(session.unfinished()),
        official_shapes=all(m.plan["problem"]["official_shape"] for m in matrices),
        comparison=comparison,
        sweeps=tuple(sweeps),
    )


def _require_problems(problems: Sequence[str], aside: Sequence[Aside]) -> None:
    if not problems and aside:
        first = aside[0]
        raise NothingToTestError(
            f"none of {len(aside)} problems can be scored; by {first.protocol}: {first.why}",
            where=first.problem,
            hint="`kernelassay audit` tells the protocols that the session can score",
        )
