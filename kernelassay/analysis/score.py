"""The score of a protocol: detection on witnessed mutants, false rejection on correct kernels.

Both are computed from the kill matrix alone. Each figure carries its denominator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay.analysis.verdicts import (
    ROWS_HINT,
    anywhere,
    check_controls,
    exact_originals,
    rejected_relaxed,
    rejects,
    undecided,
    verdicts,
    wrong_accepted,
)
from kernelassay.errors import SessionError
from kernelassay.matrix import ProblemMatrix, measured
from kernelassay.mutation.rule import FAMILIES
from kernelassay.protocols import Protocol

BOOTSTRAP_SEED = 20260901
BOOTSTRAP_DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Buckets:
    """Every generated mutant is in exactly one bucket; :meth:`check` asserts the sums."""

    generated: int
    stillborn: int
    equivalent: int
    duplicate: int
    distinct: int
    witnessed: int
    witnessed_by_stop: int
    flagged_only: int
    unobserved: int
    never_infected: int
    unmeasured: int

    def check(self) -> None:
        """Raises ``AssertionError`` if the buckets do not close."""
        assert self.generated == (
            self.stillborn + self.equivalent + self.duplicate + self.distinct
        ), self
        assert self.distinct == (
            self.witnessed
            + self.witnessed_by_stop
            + self.flagged_only
            + self.unobserved
            + self.unmeasured
        ), self
        assert self.never_infected <= self.unobserved, self

    def __add__(self, other: Buckets) -> Buckets:
        return Buckets(*(getattr(self, n) + getattr(other, n) for n in self.__slots__))


@dataclass(frozen=True, slots=True)
class Share:
    """A count of a total; ``rate`` is ``None`` when the total is zero."""

    count: int
    total: int

    @property
    def rate(self) -> float | None:
        """count / total."""
        return self.count / self.total if self.total else None


@dataclass(frozen=True, slots=True)
class MutantFacts:
    """What the matrix says about one measured mutant at one witness tolerance.

    ``whole`` tells that no cell of its row is implied.
    """

    id: str
    problem: str
    call: str
    template: str
    style: str
    family: str
    rule: str
    by_output: bool
    by_stop: bool
    flagged: bool
    infected: bool
    whole: bool
    detected: Mapping[str, bool]

    @property
    def witnessed(self) -> bool:
        """Whether some valid input proves the mutant wrong."""
        return self.by_output or self.by_stop

    @property
    def bucket(self) -> str:
        """Its bucket among the distinct mutants."""
        if self.by_output:
            return "witnessed"
        if self.by_stop:
            return "witnessed_by_stop"
        return "flagged_only" if self.flagged else "unobserved"


@dataclass(frozen=True, slots=True)
class ProtocolScore:
    """One protocol on one denominator.

    ``set_aside`` counts the witnessed mutants of relaxed styles whose own correct kernel the
    protocol rejects: it would detect them whatever their fault, so they count for nothing here.
    Nor do the ``lost`` ones, which it does not reject where an infrastructure error cost a cell, or
    where what is kept of an output does not decide its rule.

    ``false_rejection`` is over benign variants, ``originals`` over the correct kernels under
    mutation: the mutants of one that is rejected on a valid input count as detected whatever their
    fault. Both are judged on ``unfit_inputs`` too, all those that the validity gate refused and
    that the protocol runs on; neither has the ``correct_left_out``, which are left out as ``lost``
    mutants are. ``unrun_inputs`` are all that it would run on as well, but that could not be run.
    ``inputs`` is the most that it judges by on a problem. ``wrong_accepted`` counts the problems on
    which it accepts NaN, or the forced failure.
    """

    protocol: str
    tolerance: float
    inputs: int
    unfit_inputs: int
    unrun_inputs: int
    detection: Share
    false_rejection: Share
    originals: Share
    correct_left_out: int
    wrong_accepted: Mapping[str, int]
    by_family: Mapping[str, Share]
    by_rule: Mapping[str, Share]
    by_problem: Mapping[str, Share]
    by_template: Mapping[str, Share]
    by_style: Mapping[str, Share]
    set_aside: int
    lost: int
    band_full: tuple[float, float] | None
    band_ten: tuple[float, float] | None
    falsely_rejected: tuple[tuple[str, str], ...]


def mutant_facts(
    matrices: Sequence[ProblemMatrix], protocols: Sequence[Protocol], tolerance: float | None
) -> list[MutantFacts]:
    """The facts of every measured mutant, witnesses counted at ``tolerance``.

    ``None`` means each input's tightest (see :meth:`ProblemMatrix.limits`). Raises
    :class:`SessionError` if cells that were not measured leave a mutant or a verdict open.
    """
    for matrix in matrices:
        undecided = unproven(matrix, tolerance)
        if undecided:
            raise SessionError(
                f"witnesses at {_named(tolerance)} are undecided for {len(undecided)} mutants"
                f" ({undecided[0]} ...): the session was measured lazily, for another tolerance",
                where=matrix.problem,
                hint=ROWS_HINT,
            )
    return [facts for matrix in matrices for facts in problem_facts(matrix, protocols, tolerance)]


def problem_facts(
    matrix: ProblemMatrix, protocols: Sequence[Protocol], tolerance: float | None
) -> Iterable[MutantFacts]:
    """:func:`mutant_facts` of one problem, though implied cells may leave witnesses open.

    Raises :class:`SessionError` if they leave a verdict open.
    """
    by_output = anywhere(matrix.witnessing(tolerance))
    by_stop = anywhere(matrix.stopping(tolerance))
    found = [any(bool(cell) for cell in row) for row in matrix.columns["findings"]]
    infected = anywhere(matrix.columns["infected"] == 1)
    implied = anywhere(matrix.implied)
    rejected = {p.name: rejects(matrix, p) for p in protocols}
    templates = {call["id"]: call["template"] for call in matrix.plan["calls"]}
    for mutant in filter(measured, matrix.plan["mutants"]):
        row = matrix.index[mutant["id"]]
        yield MutantFacts(
            id=mutant["id"],
            problem=matrix.problem,
            call=mutant["call"],
            template=templates[mutant["call"]],
            style=mutant["style"],
            family=mutant["family"],
            rule=mutant["rule"],
            by_output=bool(by_output[row]),
            by_stop=bool(by_stop[row]),
            flagged=bool(found[row]),
            infected=bool(infected[row]),
            whole=not bool(implied[row]),
            detected={name: bool(rows[row]) for name, rows in rejected.items()},
        )


def decided(
    matrices: Iterable[ProblemMatrix], facts: Iterable[MutantFacts], protocol: Protocol
) -> list[MutantFacts]:
    """The facts of the mutants of some problems, with the verdicts of one protocol.

    Raises as :func:`verdicts.rejects`.
    """
    rejected = {
        matrix.problem: dict(zip(matrix.candidates, rejects(matrix, protocol), strict=True))
        for matrix in matrices
    }
    return [
        replace(fact, detected={protocol.name: bool(rejected[fact.problem][fact.id])})
        for fact in facts
        if fact.problem in rejected
    ]


def unproven(matrix: ProblemMatrix, tolerance: float | None) -> list[str]:
    """The mutants without a witness at a tolerance that were not measured on every input."""
    proven = anywhere(matrix.killing(tolerance))
    open_rows = anywhere(matrix.implied) & ~proven
    return [matrix.candidates[row] for row in np.flatnonzero(open_rows)]


def _named(tolerance: float | None) -> str:
    return "each input's tightest tolerance" if tolerance is None else f"{tolerance:g}"


def buckets(plans: Iterable[Mapping[str, Any]], facts: Iterable[MutantFacts]) -> Buckets:
    """The closing account of all generated mutants; asserts that it closes."""
    status: dict[str, int] = dict.fromkeys(
        ("stillborn", "equivalent", "duplicate", "distinct", "unmeasured"), 0
    )
    generated = 0
    for plan in plans:
        for mutant in plan["mutants"]:
            generated += 1
            status[mutant["status"]] += 1
            status["unmeasured"] += mutant["status"] == "distinct" and not measured(mutant)
    kinds = {"witnessed": 0, "witnessed_by_stop": 0, "flagged_only": 0, "unobserved": 0}
    never = 0
    for fact in facts:
        kinds[fact.bucket] += 1
        never += fact.bucket == "unobserved" and not fact.infected
    account = Buckets(generated=generated, **status, **kinds, never_infected=never)
    account.check()
    return account


def score(
    matrices: Sequence[ProblemMatrix],
    facts: Sequence[MutantFacts],
    protocol: Protocol,
    tolerance: float,
) -> ProtocolScore:
    """Score one protocol on the mutants witnessed at ``tolerance``.

    Raises :class:`ControlError` as :func:`check_controls`.
    """
    for matrix in matrices:
        check_controls(matrix)
    rejected_kernels = rejected_relaxed(matrices, protocol)
    proven = [fact for fact in facts if fact.witnessed]
    fair = [f for f in proven if (f.problem, f.call, f.style) not in rejected_kernels]
    open_rows = {matrix.problem: undecided(matrix, protocol) for matrix in matrices}
    witnessed = [f for f in fair if f.id not in open_rows[f.problem]]

    def shares(key: Callable[[MutantFacts], str], order: Sequence[str] = ()) -> dict[str, Share]:
        groups: dict[str, list[bool]] = {name: [] for name in order}
        for fact in witnessed:
            groups.setdefault(key(fact), []).append(fact.detected[protocol.name])
        return {name: Share(sum(hits), len(hits)) for name, hits in groups.items()}

    by_problem = shares(lambda f: f.problem)
    rejected, total, names = _false_rejections(matrices, protocol)
    unfit = [len(protocol.unfit_in(matrix.plan)) for matrix in matrices]
    valid = [len(protocol.inputs_in(matrix.plan)) for matrix in matrices]
    judged = {matrix.problem: verdicts(matrix, protocol) for matrix in matrices}
    exact = [(matrix, name) for matrix in matrices for name in exact_originals(matrix)]
    originals = [
        judged[matrix.problem][matrix.index[name]]
        for matrix, name in exact
        if name not in open_rows[matrix.problem]
    ]
    variants = sum(not b["unsupported"] for matrix in matrices for b in matrix.plan["benign"])
    return ProtocolScore(
        protocol=protocol.name,
        tolerance=tolerance,
        inputs=max(map(sum, zip(valid, unfit, strict=True)), default=0),
        unfit_inputs=sum(unfit),
        unrun_inputs=sum(len(protocol.unrun_in(matrix.plan)) for matrix in matrices),
        detection=Share(sum(f.detected[protocol.name] for f in witnessed), len(witnessed)),
        false_rejection=Share(rejected, total),
        originals=Share(sum(map(bool, originals)), len(originals)),
        correct_left_out=variants - total + len(exact) - len(originals),
        wrong_accepted=wrong_accepted(matrices, protocol),
        by_family=shares(lambda f: f.family, FAMILIES),
        by_rule=shares(lambda f: f.rule),
        by_problem=by_problem,
        by_template=shares(lambda f: f.template),
        by_style=shares(lambda f: f.style),
        set_aside=len(proven) - len(fair),
        lost=len(fair) - len(witnessed),
        band_full=bootstrap(by_problem.values(), len(by_problem)),
        band_ten=bootstrap(by_problem.values(), 10) if len(by_problem) >= 10 else None,
        falsely_rejected=names,
    )


def _false_rejections(
    matrices: Sequence[ProblemMatrix], protocol: Protocol
) -> tuple[int, int, tuple[tuple[str, str], ...]]:
    total = 0
    names: list[tuple[str, str]] = []
    for matrix in matrices:
        rejected = verdicts(matrix, protocol)
        open_rows = undecided(matrix, protocol)
        for record in matrix.plan["benign"]:
            if not record["unsupported"] and record["id"] not in open_rows:
                total += 1
                if rejected[matrix.index[record["id"]]]:
                    names.append((matrix.problem, record["id"]))
    return len(names), total, tuple(names)


def vacuous(matrices: Sequence[ProblemMatrix], protocol: Protocol) -> dict[str, list[str]]:
    """Problems on which zeros, or a copy of an input, pass the protocol."""
    found: dict[str, list[str]] = {}
    for matrix in matrices:
        rejected = rejects(matrix, protocol)
        passing = [
            name.removeprefix("control/")
            for name, row in matrix.index.items()
            if name.startswith(("control/zeros", "control/copy")) and not rejected[row]
        ]
        if passing:
            found[matrix.problem] = passing
    return found


def bootstrap(shares: Iterable[Share], size: int) -> tuple[float, float] | None:
    """The 90% band of the missed share when ``size`` problems are drawn with replacement."""
    pool = [(share.count, share.total) for share in shares]
    drawn = resampled(pool, size)
    return None if drawn is None else band(1.0 - drawn)


def resampled(pool: Iterable[tuple[int, int]], size: int) -> NDArray[np.float64] | None:
    """The ratios of summed counts to summed totals when ``size`` problems are drawn, many times.

    ``pool`` has each problem's count, of any sign, and total; one without a total is not drawn.
    """
    used = [(count, total) for count, total in pool if total]
    if not used or size < 1:
        return None
    counts, totals = np.array(used, dtype=float).T
    draws = np.random.default_rng(BOOTSTRAP_SEED).integers(
        0, len(used), size=(BOOTSTRAP_DRAWS, size)
    )
    return np.asarray(counts[draws].sum(axis=1) / totals[draws].sum(axis=1))


def band(values: NDArray[np.float64]) -> tuple[float, float]:
    """The middle 90% of some values."""
    low, high = np.quantile(values, (0.05, 0.95))
    return float(low), float(high)
