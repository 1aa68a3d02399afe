"""Is an output right? How far it may stray on an input, where it strays, and in what pattern.

Errors are measured in units of the reference's own size, so that a small output is not accepted for
being small; see :func:`scaled`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay import gate, oracle
from kernelassay.check.pattern import Pattern, pattern_of
from kernelassay.check.values import Prepared
from kernelassay.oracle import AcceptanceRule

Arrays = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What holds on one input: how far correct runs stray, and how far a candidate may.

    ``refusal`` says why the input judges nobody, or is empty.
    """

    spread: float
    limit: float
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Wrong:
    """Where outputs are wrong: the first place, what stands there, and the pattern of all places.

    ``error`` is the largest, in units of :func:`scaled`; infinite for what is not finite.
    """

    output: int
    position: tuple[int, ...]
    found: float
    right: float
    count: int
    size: int
    error: float
    pattern: Pattern
    mask: NDArray[np.bool_] = field(repr=False, compare=False)

    def describe(self) -> str:
        """One line."""
        place = f"output {self.output} {list(self.position)}" if self.position else "output"
        return (
            f"{place} is {self.found:.6g}, not {self.right:.6g}; wrong is {self.pattern.what}"
            f" ({self.pattern.how})"
        )


def scaled(values: NDArray[Any], exact: NDArray[Any]) -> NDArray[Any]:
    """``values`` in units of the root mean square of ``exact``, where that is below 1.

    A tolerance t then allows t (s + |ref|) with s = min(1, rms(ref)). Integers stay.
    """
    if exact.dtype.kind != "f":
        return values
    with np.errstate(over="ignore"):
        size = float(np.sqrt(np.mean(np.square(exact, dtype=np.float64)))) if exact.size else 0.0
    if not 0.0 < size < 1.0:
        return values
    return np.asarray(values, dtype=np.float64) / size


def bounds(prepared: Prepared, tolerance: float | None = None) -> Bounds:
    """The limit on an input: ``tolerance``, or what the gate admits of a correct kernel.

    That is :data:`gate.ADMISSION_BOUND` for the output's dtype, or
    :data:`gate.ADMISSION_FACTOR` times as far as correct float32 runs stray from float64, at most
    :data:`gate.VALIDITY_TOLERANCE`. An input on which these stray beyond half of it judges nobody.
    """
    exact = prepared.exact
    if not all(bool(np.isfinite(e).all()) for e in exact):
        return Bounds(math.inf, 0.0, "the reference is not finite")
    spread = max(_error(single, exact) for single in prepared.singles)
    if tolerance is not None:
        if spread > gate.HEADROOM * tolerance:
            return Bounds(spread, tolerance, _strays(spread, gate.HEADROOM * tolerance))
        return Bounds(spread, tolerance)
    most = gate.VALIDITY_TOLERANCE
    if spread > gate.HEADROOM * most:
        return Bounds(spread, most, _strays(spread, gate.HEADROOM * most))
    floor = gate.admission_bound(one.dtype for one in prepared.expected)
    return Bounds(spread, min(most, max(floor, gate.ADMISSION_FACTOR * spread)))


def _strays(spread: float, limit: float) -> str:
    return f"correct float32 runs stray {spread:.2e} from float64 (limit {limit:g})"


def wrong(outputs: Arrays, exact: Arrays, limit: float) -> Wrong | None:
    """Where outputs stray beyond ``limit``, or None for a right answer."""
    for index, (out, ref) in enumerate(zip(outputs, exact, strict=True)):
        rule = AcceptanceRule(limit if ref.dtype.kind == "f" else 0.0)
        verdict = oracle.grade(scaled(out, ref), scaled(ref, ref))
        if not rule.accepts(verdict):
            return _where(index, out, ref, rule.tolerance)
    return None


def deviation(first: Arrays, second: Arrays, exact: Arrays) -> float:
    """How far two runs lie apart, in the units of a limit; 0 if they are the same bytes."""
    if all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True)):
        return 0.0
    parts = []
    for a, b, ref in zip(first, second, exact, strict=True):
        verdict = oracle.grade(scaled(a, ref), scaled(b, ref))
        parts.append(_critical(verdict))
    return max(parts)


def _error(outputs: Arrays, exact: Arrays) -> float:
    verdicts = [
        oracle.grade(scaled(o, e), scaled(e, e)) for o, e in zip(outputs, exact, strict=True)
    ]
    return max(map(_critical, verdicts))


def _critical(verdict: oracle.Verdict) -> float:
    if not AcceptanceRule(math.inf).accepts(verdict):
        return math.inf
    return verdict.critical_tolerance


def _where(index: int, out: NDArray[Any], ref: NDArray[Any], limit: float) -> Wrong:
    a = np.asarray(scaled(out, ref), dtype=np.float64)
    b = np.asarray(scaled(ref, ref), dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(a - b) / (1.0 + np.abs(b))
    mask = ~(error <= limit)
    places = np.argwhere(mask)
    first = tuple(int(i) for i in places[0])
    worst = float(error[mask].max()) if np.isfinite(error[mask]).all() else math.inf
    found = pattern_of(mask)
    bad = ~np.isfinite(np.asarray(out, dtype=np.float64))
    if bad.any() and bool((bad | ~mask).all()):
        found = replace(found, what=found.what + ", all not finite")
    return Wrong(
        output=index,
        position=first,
        found=float(out[first]),
        right=float(ref[first]),
        count=len(places),
        size=int(mask.size),
        error=worst,
        pattern=found,
        mask=mask,
    )


def all_hold(output: NDArray[Any], mask: NDArray[np.bool_], fill: int) -> bool:
    """Whether the elements of ``mask`` all hold ``fill`` in each of their bytes."""
    if output.dtype.itemsize == 1:
        return False  # a byte may well be right by chance, or wrong as a value
    width = output.dtype.itemsize
    raw = np.ascontiguousarray(output[mask]).reshape(-1).view(np.uint8)
    return bool((raw == fill).all()) and raw.size >= width
