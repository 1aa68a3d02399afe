"""All protocols of an audit on one denominator: what every one of them is scored on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelassay.analysis.ground import Candidates, Ground, rejected, shared
from kernelassay.analysis.score import MutantFacts, ProtocolScore, Share, bootstrap
from kernelassay.analysis.verdicts import rejected_relaxed
from kernelassay.matrix import ProblemMatrix
from kernelassay.protocols import Protocol


@dataclass(frozen=True, slots=True)
class CommonScore:
    """One protocol there. ``band`` is the 90% band of its missed share, drawn by problem.

    ``false_rejection`` is over benign variants, ``originals`` over the kernels under mutation.
    """

    detection: Share
    band: tuple[float, float] | None
    false_rejection: Share
    originals: Share


@dataclass(frozen=True, slots=True)
class Common:
    """The candidates that all protocols are scored on, by the rules of :class:`ProtocolScore`.

    ``aside`` has, by problem, why it is not among the ``problems``; ``left_out`` counts the
    witnessed mutants of these that are set aside or lost for some protocol.
    """

    problems: int
    aside: Mapping[str, str]
    left_out: int
    scores: Mapping[str, CommonScore]

    def narrows(self, scores: Iterable[ProtocolScore]) -> bool:
        """Whether it leaves out candidates that some protocol is scored on by itself."""
        return any(_totals(one) != _totals(self.scores[one.protocol]) for one in scores)


def _totals(score: ProtocolScore | CommonScore) -> tuple[int, int, int]:
    return score.detection.total, score.false_rejection.total, score.originals.total


def common_ground(
    matrices: Sequence[ProblemMatrix],
    facts: Iterable[MutantFacts],
    protocols: Sequence[tuple[Protocol, Mapping[str, str]]],
) -> Common | None:
    """Several protocols on one denominator; ``None`` for fewer than two, or if no mutant is left.

    Each protocol comes with the problems that it cannot be scored on, as :func:`fitting` tells
    them. Raises as :func:`verdicts.rejects`.
    """
    aside: dict[str, str] = {}
    for protocol, problems in protocols:
        for problem, why in problems.items():
            aside.setdefault(problem, f"{protocol.name}: {why}")
    fit = [matrix for matrix in matrices if matrix.problem not in aside]
    alone = [protocol for protocol, _ in protocols]
    unfair = {key for protocol in alone for key in rejected_relaxed(fit, protocol)}
    found = shared(fit, (), facts, alone, unfair)
    if len(protocols) < 2 or not found.mutants:
        return None
    return Common(
        problems=len(fit),
        aside=aside,
        left_out=found.set_aside + found.lost,
        scores={protocol.name: _score(found, protocol) for protocol in alone},
    )


def _score(found: Ground, protocol: Protocol) -> CommonScore:
    hits: Counter[str] = Counter()
    totals = Counter(problem for problem, _ in found.mutants)
    verdicts = rejected(found.matrices, found.mutants, protocol)
    for (problem, _), hit in zip(found.mutants, verdicts, strict=True):
        hits[problem] += int(hit)
    parts = [Share(hits[name], total) for name, total in totals.items()]

    def share(candidates: Candidates) -> Share:
        verdicts = rejected(found.matrices, candidates, protocol)
        return Share(int(verdicts.sum()), len(candidates))

    return CommonScore(
        detection=Share(hits.total(), totals.total()),
        band=bootstrap(parts, len(parts)),
        false_rejection=share(found.variants),
        originals=share(found.originals),
    )
