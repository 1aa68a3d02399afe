"""The validity gate and admission: is an input fit to judge with, is a substrate correct?

The two must not be confused. An input on which the *references* disagree cannot judge anybody; a
kernel that strays where they agree is wrong, and its problem is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kernelassay.cell import OK, Cell
from kernelassay.oracle import AcceptanceRule

ADMISSION_BOUND = 1e-4
"""Bound on a correct kernel's distance from float64, fixed beforehand: the tolerance of the
current KernelBench check. On official inputs it bounds the critical tolerance; on others the
largest absolute error, in units of one plus the largest magnitude that occurs in the graph, since
a sum of large terms of both signs may be small while its rounding is not."""

ADMISSION_BOUNDS = {"float16": 4e-3}
"""The same bound for outputs of a narrower dtype: eight times the rounding of the result alone."""
OFFICIAL_FACTOR = 4.0
"""On official inputs a kernel may also stray this many times as far as the float32 reference: a
deep network with normalisations amplifies every rounding, PyTorch's too."""

ADMISSION_FACTOR = 32.0
"""A kernel may always stray this many times as far as the float32 reference itself: an input that
amplifies rounding does so for every order of summation."""

VALIDITY_TOLERANCE = 1e-2
HEADROOM = 0.5
"""An input is valid at a tolerance if the references agree, and every correct kernel passes,
within this share of it."""

_MATCHED = AcceptanceRule(float("inf"), nonfinite="matched")


def exact_error(cell: Cell) -> float:
    """The critical tolerance of a cell against float64; infinite if it has no fit output."""
    if cell.outcome != OK or cell.exact is None or not _MATCHED.accepts(cell.exact):
        return float("inf")
    return cell.exact.critical_tolerance


def worst_error(correct: Iterable[Cell]) -> float:
    """The largest :func:`exact_error` over the cells of correct kernels on one input."""
    return max((exact_error(cell) for cell in correct), default=0.0)


def objection(reference_error: float, correct_error: float) -> str:
    """Why an input is not valid, or an empty string."""
    limit = VALIDITY_TOLERANCE * HEADROOM
    if reference_error > limit:
        return f"the float32 reference strays {reference_error:.2e} from float64 (limit {limit:g})"
    if correct_error > limit:
        return f"a correct kernel strays {correct_error:.2e} from float64 (limit {limit:g})"
    return ""


def admission_bound(dtypes: Iterable[str]) -> float:
    """The bound on a correct kernel's distance from float64 for outputs of some dtypes."""
    return max(ADMISSION_BOUNDS.get(dtype, ADMISSION_BOUND) for dtype in dtypes)


def official_limit(reference_error: float, bound: float = ADMISSION_BOUND) -> float:
    """How far a correct kernel may stray from float64 on an official input."""
    return max(bound, OFFICIAL_FACTOR * reference_error)


def refusal(
    correct: Iterable[Cell],
    *,
    official: bool,
    magnitude: float,
    reference_error: float,
    bound: float = ADMISSION_BOUND,
) -> str:
    """Why a correct kernel is not admitted, judging by one input, or an empty string.

    ``magnitude`` is the largest finite magnitude among the values of the traced graph.
    """
    for cell in correct:
        seen = f": {cell.detail}" if cell.detail else ""
        if cell.outcome != OK:
            return f"{cell.candidate} ended with {cell.outcome}: {cell.detail}"
        if cell.findings:
            finding = cell.findings[0]
            return f"{cell.candidate} has a finding: {finding.kind} ({finding.detail})"
        error = exact_error(cell)
        if official and error > official_limit(reference_error, bound):
            return f"{cell.candidate} strays {error:.2e} from float64{seen}"
        if cell.candidate.startswith("benign/"):
            continue  # elsewhere, a variant that strays makes the input unfit, not itself wrong
        off = cell.exact.max_abs if cell.exact is not None and math.isfinite(error) else math.inf
        far = error > ADMISSION_FACTOR * reference_error
        if far and off > bound * (1.0 + magnitude):
            return f"{cell.candidate} is off by {off:.2e} where values reach {magnitude:.2e}{seen}"
    return ""
