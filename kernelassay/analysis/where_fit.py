"""Protocols on what sessions have finished, each where it can be scored.

An audit scores a protocol on all problems or not at all. Here a problem that a protocol cannot be
scored on is set aside for that protocol alone, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelassay.analysis.ground import why_aside
from kernelassay.analysis.mechanism import MECHANISMS, TOLERATED, fates
from kernelassay.analysis.score import MutantFacts, ProtocolScore, Share, mutant_facts, score
from kernelassay.errors import SessionError
from kernelassay.joined import JoinedSessions
from kernelassay.matrix import ProblemMatrix, load
from kernelassay.protocols import DEFAULT, Protocol
from kernelassay.session import Session


@dataclass(frozen=True, slots=True)
class Scored:
    """One protocol where it can be scored: over all problems (``None`` if on none), and on each.

    ``aside`` has the other problems, with the reason.
    """

    protocol: Protocol
    total: ProtocolScore | None
    alone: Mapping[str, ProtocolScore]
    aside: Mapping[str, str]

    def check(self, facts: Sequence[MutantFacts]) -> None:
        """Assert that every witnessed mutant is scored, or left out for a reason."""
        proven = Counter(fact.problem for fact in facts if fact.witnessed)
        aside = sum(proven[problem] for problem in self.aside)
        if self.total is None:
            assert aside == proven.total(), self.protocol.name
            return
        counted = self.total.detection.total + self.total.set_aside + self.total.lost
        assert counted + aside == proven.total(), self.protocol.name
        for name in ("detection", "false_rejection"):
            parts = [getattr(one, name) for one in self.alone.values()]
            summed = Share(sum(p.count for p in parts), sum(p.total for p in parts))
            assert getattr(self.total, name) == summed, (self.protocol.name, name)


@dataclass(frozen=True, slots=True)
class Finished:
    """What is finished of some sessions of one campaign, and the protocols on it, by name."""

    session: JoinedSessions
    plans: Sequence[Mapping[str, Any]]
    matrices: Sequence[ProblemMatrix]
    facts: Sequence[MutantFacts]
    tolerance: float
    scored: Mapping[str, Scored]


def finished(
    sessions: Sequence[Session], tolerance: float, protocols: Sequence[Protocol] = DEFAULT
) -> Finished:
    """Score what is finished, witnesses counted at ``tolerance``; asserts that it closes.

    Raises as :class:`JoinedSessions`, :func:`kernelassay.matrix.load` and :func:`mutant_facts`.
    """
    joined = JoinedSessions(sessions)
    matrices = load(joined, partial=True)
    facts = mutant_facts(matrices, (), tolerance)
    scored = {p.name: scored_where_fit(matrices, p, tolerance) for p in protocols}
    for one in scored.values():
        one.check(facts)
    return Finished(joined, joined.finished_plans(), matrices, facts, tolerance, scored)


def scored_where_fit(
    matrices: Sequence[ProblemMatrix], protocol: Protocol, tolerance: float
) -> Scored:
    """Score a protocol on the problems that have its inputs and whose controls behave.

    One that a lazy run has not decided it on, being for other protocols, is set aside, too.
    """
    alone: dict[str, ProtocolScore] = {}
    aside: dict[str, str] = {}
    for matrix in matrices:
        try:
            why = why_aside(matrix, protocol)
            if not why:
                alone[matrix.problem] = scored_on((matrix,), protocol, tolerance)
        except SessionError as error:
            why = error.what
        if why:
            aside[matrix.problem] = why
    fit = [matrix for matrix in matrices if matrix.problem in alone]
    total = scored_on(fit, protocol, tolerance) if fit else None
    return Scored(protocol, total, alone, aside)


def scored_on(
    matrices: Sequence[ProblemMatrix], protocol: Protocol, tolerance: float
) -> ProtocolScore:
    """The score of a protocol on problems that it can be scored on."""
    return score(matrices, mutant_facts(matrices, (protocol,), tolerance), protocol, tolerance)


@dataclass(frozen=True, slots=True)
class Survivors:
    """What a protocol accepts of the faults in some kernels of a problem.

    ``survive`` are proven wrong on some input; of these, ``tolerated`` change the final output on
    an input of the protocol, and ``caught`` are those that a tighter protocol rejects (``None`` if
    it is not scored on the problem).
    """

    measured: int
    survive: int
    tolerated: int
    caught: int | None


def survivors(
    matrix: ProblemMatrix, calls: Collection[str], loose: Scored, tight: Scored, tolerance: float
) -> Survivors:
    """The mutants of some calls that ``loose`` accepts; it must be scored on the problem.

    A proof counts at ``tolerance`` or at the tightest of its input (see :meth:`matrix.limits`). A
    lazy run measures the whole row of what it finds no witness of, so this leaves out none.
    """
    proof = matrix.killing(None)
    proven = {matrix.candidates[row] for row in np.flatnonzero(proof.any(axis=1))}
    protocols = [s.protocol for s in (loose, tight) if matrix.problem in s.alone]
    facts = [
        replace(fact, by_output=fact.by_output or fact.id in proven)
        for fact in mutant_facts((matrix,), protocols, tolerance)
        if fact.call in calls
    ]
    fate = dict(zip(matrix.candidates, fates(matrix, loose.protocol), strict=True))
    alive = [fact for fact in facts if fact.witnessed and fate[fact.id] in MECHANISMS]
    caught = None
    if tight.protocol in protocols:
        caught = sum(fact.detected[tight.protocol.name] for fact in alive)
    tolerated = sum(fate[fact.id] == TOLERATED for fact in alive)
    return Survivors(len(facts), len(alive), tolerated, caught)
