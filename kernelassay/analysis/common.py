"""All protocols of an audit on one denominator: what every one of them is scored on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelassay.analysis.ground import Candidates, correct, fitting, rejected
from kernelassay.analysis.score import MutantFacts, ProtocolScore, Share, bootstrap
from kernelassay.analysis.verdicts import rejected_relaxed, undecided
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
    protocols: Sequence[Protocol],
) -> Common | None:
    """Several protocols on one denominator; ``None`` for fewer than two, or if no mutant is left.

    Raises as :func:`verdicts.rejects`.
    """
    aside: dict[str, str] = {}
    for protocol in protocols:
        for problem, why in fitting(matrices, protocol)[1].items():
            aside.setdefault(problem, f"{protocol.name}: {why}")
    shared = [matrix for matrix in matrices if matrix.problem not in aside]
    unfair = {key for protocol in protocols for key in rejected_relaxed(shared, protocol)}
    lost = {m.problem: {name for p in protocols for name in undecided(m, p)} for m in shared}
    proven = [fact for fact in facts if fact.witnessed and fact.problem in lost]
    mutants = tuple(
        (f.problem, f.id)
        for f in proven
        if (f.problem, f.call, f.style) not in unfair and f.id not in lost[f.problem]
    )
    if len(protocols) < 2 or not mutants:
        return None
    variants, originals = correct(shared, lost)
    return Common(
        problems=len(shared),
        aside=aside,
        left_out=len(proven) - len(mutants),
        scores={p.name: _score(shared, p, mutants, variants, originals) for p in protocols},
    )


def _score(
    matrices: Sequence[ProblemMatrix],
    protocol: Protocol,
    mutants: Candidates,
    variants: Candidates,
    originals: Candidates,
) -> CommonScore:
    hits: Counter[str] = Counter()
    totals = Counter(problem for problem, _ in mutants)
    for (problem, _), hit in zip(mutants, rejected(matrices, mutants, protocol), strict=True):
        hits[problem] += int(hit)
    parts = [Share(hits[name], total) for name, total in totals.items()]

    def share(candidates: Candidates) -> Share:
        return Share(int(rejected(matrices, candidates, protocol).sum()), len(candidates))

    return CommonScore(
        detection=Share(hits.total(), totals.total()),
        band=bootstrap(parts, len(parts)),
        false_rejection=share(variants),
        originals=share(originals),
    )
