"""What the fuzzing oracle says of one execution: a verdict for every tolerance, and statistics.

The reference is computed in float64 from the case's inputs. The published oracle rounds it to the
dtype under test and compares in that dtype; whether to is the ``reference`` of a :class:`Rule`,
whose acceptance rule is the tolerance and what it makes of non-finite elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kernelassay.execute.execution import Execution
from kernelassay.illusion.op import Op
from kernelassay.oracle import AcceptanceRule, Nonfinite, Verdict, grade, output_digest, ulps

Reference = Literal["rounded", "exact"]
Failure = Literal["", "outcome", "shape", "dtype", "tolerance", "nonfinite"]
FAILURES: tuple[Failure, ...] = ("outcome", "shape", "dtype", "tolerance", "nonfinite")

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Statistics:
    """How absolute errors against the rounded reference are spread, over finite pairs.

    ``magnitude`` is the largest of those references' absolute values.
    ``quantiles`` are those of :data:`QUANTILES`, by the nearest rank. ``mean_ulp`` counts
    representable numbers of the output's dtype between the two.
    """

    magnitude: float
    mean_abs: float
    mean_rel: float
    mean_ulp: float
    quantiles: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One execution, graded once for every tolerance and treatment of non-finite elements.

    ``rounded`` and ``exact`` are the verdicts against the reference rounded to the dtype under
    test and against the float64 one; both are ``None`` if there is no output of the right shape
    and dtype, which ``failure`` then names. ``output_digest`` covers the output's bytes.
    """

    failure: Failure
    detail: str
    output_digest: str
    rounded: Verdict | None
    exact: Verdict | None
    statistics: Statistics | None


@dataclass(frozen=True, slots=True)
class Rule:
    """How the oracle decides: which reference, how non-finite elements count, which tolerance.

    ``scale`` multiplies the operator's own absolute tolerance. The published oracle is the
    default: the rounded reference, and any non-finite output a failure whatever the reference has.
    """

    nonfinite: Nonfinite = "strict"
    reference: Reference = "rounded"
    scale: float = 1.0

    def acceptance(self, tolerance: float) -> AcceptanceRule:
        """The acceptance rule for an operator's absolute tolerance."""
        return AcceptanceRule(self.scale * tolerance, nonfinite=self.nonfinite, relative=0.0)

    def failure(self, judged: Judgement, tolerance: float) -> Failure:
        """Why an execution fails, the first of :data:`FAILURES`; "" if it passes.

        Values come before non-finite elements, as published.
        """
        verdict = self.looks_at(judged)
        return judged.failure if verdict is None else self.of_verdict(verdict, tolerance)

    def looks_at(self, judged: Judgement) -> Verdict | None:
        """The verdict that this rule decides on."""
        return judged.rounded if self.reference == "rounded" else judged.exact

    def of_verdict(self, verdict: Verdict, tolerance: float) -> Failure:
        """Why an output of the right shape and dtype fails; "" if it passes."""
        accepts = self.acceptance(tolerance)
        if not verdict.max_abs <= accepts.tolerance:
            return "tolerance"
        return "" if accepts.accepts(verdict) else "nonfinite"


def judge(execution: Execution, reference: NDArray[np.float64], op: Op, dtype: str) -> Judgement:
    """Grade what a kernel gave for a case against the float64 reference.

    Elements that it never wrote count as zero, what an allocator often hands out: the checker does
    not see that they are marked. An output whose shape or dtype is wrong is not compared any
    further, as published.
    """
    output = execution.output
    if output is None:
        return Judgement("outcome", f"{execution.outcome}: {execution.detail}", "", *_NOTHING)
    digested = output_digest([output])
    if output.shape != reference.shape:
        detail = f"{list(output.shape)}, not {list(reference.shape)}"
        return Judgement("shape", detail, digested, *_NOTHING)
    if output.dtype != np.dtype(dtype):
        return Judgement("dtype", f"{output.dtype}, not {dtype}", digested, *_NOTHING)
    with np.errstate(over="ignore"):
        rounded = reference.astype(dtype)
    seen = execution.filled(0.0)
    assert seen is not None
    return Judgement(
        failure="",
        detail="",
        output_digest=digested,
        rounded=grade(seen, rounded),
        exact=grade(seen, reference),
        statistics=statistics(seen, rounded),
    )


_NOTHING: Any = (None, None, None)


def statistics(output: NDArray[Any], reference: NDArray[Any]) -> Statistics:
    """Statistics of two arrays of one shape and one float dtype."""
    out, ref = (np.asarray(a, np.float64).ravel() for a in (output, reference))
    finite = np.isfinite(out) & np.isfinite(ref)
    error, size = np.abs(out[finite] - ref[finite]), np.abs(ref[finite])
    ordered = np.sort(error)
    nonzero = size > 0.0
    return Statistics(
        magnitude=float(size.max(initial=0.0)),
        mean_abs=_mean(error),
        mean_rel=_mean(error[nonzero] / size[nonzero]),
        mean_ulp=_mean(ulps(output.ravel()[finite], reference.ravel()[finite])),
        quantiles=tuple(_nearest_rank(ordered, q) for q in QUANTILES),
    )


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if values.size else 0.0


def _nearest_rank(ordered: NDArray[np.float64], quantile: float) -> float:
    return float(ordered[round(quantile * (ordered.size - 1))]) if ordered.size else 0.0


def nearest_rank(values: Sequence[float] | NDArray[Any], quantile: float) -> float:
    """The quantile of numbers by the nearest rank, round(q (n - 1)); 0.0 for none."""
    return _nearest_rank(np.sort(np.asarray(values, np.float64)), quantile)
