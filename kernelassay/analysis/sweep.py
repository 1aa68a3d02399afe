"""Detection and false rejection of one protocol at every tolerance of a ladder.

All tolerances are scored on the same candidates, those that the protocol itself is scored on. So a
laxer tolerance never detects more, nor rejects more correct kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelassay.analysis.ground import Aside, Gap, gap, ground, rejected
from kernelassay.analysis.plain import plain
from kernelassay.analysis.score import MutantFacts, Share
from kernelassay.analysis.verdicts import undecided
from kernelassay.matrix import ProblemMatrix
from kernelassay.oracle import LADDER
from kernelassay.protocols import Protocol

STEPS = tuple(sorted({*LADDER, *(3.0 * tolerance for tolerance in LADDER[1:])}, reverse=True))
"""Two tolerances a decade."""


@dataclass(frozen=True, slots=True)
class Step:
    """One tolerance. ``originals`` are correct kernels under mutation that are rejected there.

    If any is, an audit at this tolerance would give no score. The shares are None where the cells
    leave verdicts open, which ``gap`` then tells.
    """

    tolerance: float
    detection: Share | None
    false_rejection: Share | None
    originals: Share | None
    gap: Gap | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """One protocol at several tolerances, lax ones first, on the candidates it is scored on.

    ``tolerances`` are its own, the default one first. ``set_aside`` and ``lost`` count mutants as
    in :class:`Ground`; one that is lost at a single tolerance is left out of all.
    """

    protocol: str
    tolerances: tuple[float, ...]
    problems: tuple[str, ...]
    aside: tuple[Aside, ...]
    set_aside: int
    lost: int
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data; shares carry their rate."""
        return plain(self)


def at(protocol: Protocol, tolerance: float) -> Protocol:
    """The protocol with one tolerance for all dtypes."""
    return replace(
        protocol,
        name=f"{protocol.name} at {tolerance:g}",
        default=replace(protocol.default, tolerance=tolerance),
        rules={dtype: replace(rule, tolerance=tolerance) for dtype, rule in protocol.rules.items()},
    )


def sweep(
    matrices: Sequence[ProblemMatrix],
    facts: Sequence[MutantFacts],
    protocol: Protocol,
    ladder: Iterable[float] = STEPS,
) -> Sweep:
    """Score a protocol at each tolerance; ``facts`` tell which mutants are witnessed.

    Raises :class:`SessionError` if the protocol itself is open on cells that were not measured.
    """
    shared = ground(matrices, facts, (protocol,))
    swept = [(t, at(protocol, t)) for t in sorted(set(ladder), reverse=True)]
    gaps = {t: gap(shared.matrices, one) for t, one in swept}
    decided = [one for t, one in swept if gaps[t] is None]
    lost = {
        m.problem: frozenset().union(*(undecided(m, one) for one in decided))
        for m in shared.matrices
    }
    mutants, variants, originals = (
        tuple((problem, name) for problem, name in some if name not in lost[problem])
        for some in (shared.mutants, shared.variants, shared.originals)
    )

    def step(tolerance: float, one: Protocol) -> Step:
        if gaps[tolerance] is not None:
            return Step(tolerance, None, None, None, gaps[tolerance])
        detected, false, original = (
            Share(int(rejected(shared.matrices, some, one).sum()), len(some))
            for some in (mutants, variants, originals)
        )
        return Step(tolerance, detected, false, original, None)

    own = (protocol.default, *protocol.rules.values())
    return Sweep(
        protocol=protocol.name,
        tolerances=tuple(dict.fromkeys(rule.tolerance for rule in own)),
        problems=shared.problems,
        aside=shared.aside,
        set_aside=shared.set_aside,
        lost=shared.lost + len(shared.mutants) - len(mutants),
        steps=tuple(step(t, one) for t, one in swept),
    )
