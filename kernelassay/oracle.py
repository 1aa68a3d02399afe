"""The graded verdict: how far an output strayed, in numbers that serve every tolerance.

One grading replaces a re-run per tolerance: an acceptance rule is applied to the stored
:class:`Verdict`, never to the output again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kernelassay.errors import UnsupportedError

LADDER = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""Tolerances t for which the number of elements with |d| > t (1 + |ref|) is kept."""

Nonfinite = Literal["allclose", "matched", "strict", "ignored", "skips", "wildcard"]
Form = Literal["sum", "max"]
CRITICAL: dict[Form, str] = {"sum": "critical_tolerance", "max": "critical_max_rule"}

# One quiet NaN per width marks output elements that no thread has written: the word is a NaN both
# as float32 and, doubled, as float64. The payload
# tells it from the NaN that arithmetic produces (payload zero).
POISON_WORD = 0x7FF8DEAD
POISON_HALF = 0x7E5D


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one output differs from one reference, over all ``count`` elements.

    ``critical_tolerance`` is the smallest t for which ``allclose(out, ref, atol=t, rtol=t)`` holds
    on the elements where both are finite: max |out - ref| / (1 + |ref|).
    ``critical_max_rule`` is the same for |out - ref| <= max(t, t |ref|).
    ``max_ulp`` counts representable numbers of the output's own dtype between the two (float
    outputs only, else 0). ``past`` counts elements beyond each tolerance of :data:`LADDER`.
    ``nan_matches`` / ``inf_matches`` tell whether NaNs stand in the same places, and infinities
    in the same places with the same sign.
    """

    count: int
    critical_tolerance: float
    critical_max_rule: float
    max_abs: float
    max_rel: float
    max_ulp: float
    past: tuple[int, ...]
    out_nan: int
    out_inf: int
    ref_nan: int
    ref_inf: int
    nan_matches: bool
    inf_matches: bool


Bools = NDArray[np.bool_]
Column = Callable[[str], NDArray[Any]]
"""Gives a number of verdicts by name: a field of :class:`Verdict`, or ``past_<tolerance>``."""


@dataclass(frozen=True, slots=True)
class AcceptanceRule:
    """When a checker calls an output correct.

    ``form`` "sum" is |d| <= t + r |ref| (``allclose``), "max" is |d| <= max(t, r |ref|); r is
    ``relative``, by default the tolerance t; 0 leaves |d| <= t. A share ``matched_ratio`` of the
    elements must be so.
    ``nonfinite``: "allclose" rejects any NaN and wants equal infinities (``torch.allclose``);
    "matched" wants the same kind in the same places; "strict" rejects every non-finite output;
    "ignored" looks at finite pairs only; "skips" looks away where the reference is not finite,
    and lets NaN pass everywhere, since NaN is not greater than a tolerance; "wildcard" accepts
    anything where the reference is NaN, and elsewhere no output and no reference that is infinite.
    """

    tolerance: float
    form: Form = "sum"
    nonfinite: Nonfinite = "allclose"
    relative: float | None = None
    matched_ratio: float = 1.0

    def accepts(self, verdict: Verdict) -> bool:
        """Whether an output with this verdict passes.

        Raises :class:`UnsupportedError` if the verdict does not tell.
        """
        past = {f"past_{t:g}": n for t, n in zip(LADDER, verdict.past, strict=True)}

        def column(name: str) -> NDArray[Any]:
            return np.asarray(past[name] if name in past else getattr(verdict, name))

        passes, unknown = self.judge(column)
        if unknown:
            raise UnsupportedError(f"what is kept of an output does not decide {self}")
        return bool(passes)

    def judge(self, column: Column) -> tuple[Bools, Bools]:
        """Which verdicts surely pass, and of which the numbers do not tell. Any shape."""
        within, beyond = self._values(column)
        good, bad = self._nonfinite(column)
        return within & good, ~(within & good) & ~(beyond | bad)

    def in_words(self) -> str:
        """The rule as one line of text."""
        t, r = self.tolerance, self.tolerance if self.relative is None else self.relative
        if r == 0.0:
            bound = f"|out - ref| <= {t:g}"
        elif self.form == "sum":
            bound = f"|out - ref| <= {t:g} + {r:g} |ref|"
        else:
            bound = f"|out - ref| <= max({t:g}, {r:g} |ref|)"
        where = f" for {self.matched_ratio:.0%} of the elements" if self.matched_ratio < 1 else ""
        return f"{bound}{where}; {_SAID[self.nonfinite]}"

    def margin(self, critical: float) -> float:
        """A critical tolerance of its form over the tolerance: beyond 1 it is rejected."""
        bound = self._bounds()[1]
        if bound > 0:
            return critical / bound
        return float("inf") if critical > bound else 0.0

    def _bounds(self) -> tuple[float, float]:
        """Critical tolerances that surely pass, up to the first, or fail, beyond the second."""
        relative = self.tolerance if self.relative is None else self.relative
        return min(self.tolerance, relative), max(self.tolerance, relative)

    def _values(self, column: Column) -> tuple[Bools, Bools]:
        """Which finite parts surely pass, and which surely do not.

        With two tolerances or a ratio the numbers bracket the truth: critical tolerances are kept
        for equal ones, and elements counted in the sum form, past the tolerances of the ladder.
        """
        low, high = self._bounds()
        critical = column(CRITICAL[self.form])
        with np.errstate(invalid="ignore"):
            within, beyond = critical <= low, ~(critical <= high)
            if self.relative == 0.0:
                within = column("max_abs") <= self.tolerance
                beyond = ~within
            elif self.relative is not None:
                within = within | (column("max_abs") <= self.tolerance)
                within = within | (column("max_rel") <= self.relative)
                both = self.tolerance + self.relative  # t + r |ref| <= (t + r) max(1, |ref|)
                beyond = beyond | ~(column("critical_max_rule") <= both)
        if self.matched_ratio < 1.0:
            # Past max(t, t |ref|) is past t / 2 (1 + |ref|), and past t (1 + |ref|) is past that.
            tight = low if self.form == "sum" else low / 2
            count = column("count")
            below = next((column(f"past_{t:g}") for t in LADDER if t <= tight), count)
            above = next((column(f"past_{t:g}") for t in LADDER[::-1] if t >= high), 0 * count)
            allowed = (1.0 - self.matched_ratio + 1e-9) * count
            within, beyond = within | (below <= allowed), beyond & (above > allowed)
        return np.asarray(within), np.asarray(beyond & ~within)

    def _nonfinite(self, column: Column) -> tuple[Bools, Bools]:
        """Which verdicts surely pass as to NaN and infinity, and which surely do not."""
        nans, infinities = column("out_nan"), column("out_inf")
        matches = (column("nan_matches") == 1) & (column("inf_matches") == 1)
        finite_reference = (column("ref_nan") == 0) & (column("ref_inf") == 0)
        if self.nonfinite == "ignored":
            good = np.ones_like(matches)
        elif self.nonfinite == "strict":
            good = (nans == 0) & (infinities == 0)
        elif self.nonfinite == "matched":
            good = matches
        elif self.nonfinite == "allclose":
            good = (nans == 0) & (column("ref_nan") == 0) & (column("inf_matches") == 1)
        elif self.nonfinite == "skips":
            # An infinite output is skipped, or wrong, by the reference in its place.
            good = (infinities == 0) | (column("inf_matches") == 1)
            return np.asarray(good), np.asarray(~good & finite_reference)
        else:
            bad = (column("ref_inf") > 0) | (nans + infinities > column("ref_nan"))
            good = ~bad & ((nans + infinities == 0) | (matches & (infinities == 0)))
            return np.asarray(good), np.asarray(bad)
        return np.asarray(good), np.asarray(~good)


_SAID: dict[Nonfinite, str] = {
    "allclose": "no NaN, equal infinities",
    "matched": "NaN where the reference has NaN, equal infinities",
    "strict": "no NaN and no infinity, whatever the reference has",
    "ignored": "finite pairs alone count",
    "skips": "no infinity; NaN passes, and so does all where the reference is not finite",
    "wildcard": "all passes where the reference is NaN, else no NaN and no infinity on either side",
}


def critical(verdict: Verdict, form: Form) -> float:
    """The smallest tolerance that accepts the finite part of an output under ``form``."""
    return float(getattr(verdict, CRITICAL[form]))


def grade(out: NDArray[Any], ref: NDArray[Any]) -> Verdict:
    """Compare ``out`` with ``ref`` (equal shapes; any float, integer or bool dtypes), in float64.

    Raises ``ValueError`` on a shape mismatch, which is an outcome of its own and no verdict.
    """
    if out.shape != ref.shape:
        raise ValueError(f"output shape {out.shape} is not the reference's {ref.shape}")
    a = np.asarray(out, dtype=np.float64).ravel()
    b = np.asarray(ref, dtype=np.float64).ravel()
    finite = np.isfinite(a) & np.isfinite(b)
    all_finite = bool(finite.all())
    fa, fb = (a, b) if all_finite else (a[finite], b[finite])
    difference = np.abs(fa - fb)
    size = np.abs(fb)
    scaled = difference / (1.0 + size)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        relative = np.where(difference == 0.0, 0.0, difference / size)
    counts = (0, 0, 0, 0) if all_finite else _nonfinite_counts(a, b)
    return Verdict(
        count=a.size,
        critical_tolerance=_largest(scaled),
        critical_max_rule=_largest(difference / np.maximum(1.0, size)),
        max_abs=_largest(difference),
        max_rel=_largest(relative),
        max_ulp=float(ulps(np.ravel(out)[finite], np.ravel(ref)[finite]).max(initial=0)),
        past=tuple(int(np.count_nonzero(scaled > t)) for t in LADDER),
        out_nan=counts[0],
        out_inf=counts[1],
        ref_nan=counts[2],
        ref_inf=counts[3],
        nan_matches=all_finite or bool(np.array_equal(np.isnan(a), np.isnan(b))),
        inf_matches=all_finite or _infinities_match(a, b),
    )


def merge(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict over several output tensors taken as one."""
    if len(verdicts) == 1:
        return verdicts[0]
    values: dict[str, Any] = {}
    for field in fields(Verdict):
        column = [getattr(v, field.name) for v in verdicts]
        if field.name == "past":
            values[field.name] = tuple(sum(row) for row in zip(*column, strict=True))
        elif field.name.endswith("_matches"):
            values[field.name] = all(column)
        elif field.name.startswith(("critical", "max")):
            values[field.name] = max(column)
        else:
            values[field.name] = sum(column)
    return Verdict(**values)


def first_wrong(
    outputs: Sequence[NDArray[Any]],
    references: Sequence[NDArray[Any]],
    unwritten: int = 0,
    tolerance: float = 1e-4,
    *,
    relative: bool = True,
) -> str:
    """Where outputs first stray beyond a tolerance, and where most, in words; "" if nowhere.

    ``unwritten`` counts the elements no thread wrote. Errors are in units of 1 + |ref|, or, if not
    ``relative``, absolute.
    """
    for index, (out, ref) in enumerate(zip(outputs, references, strict=True)):
        a, b = np.asarray(out, dtype=np.float64), np.asarray(ref, dtype=np.float64)
        with np.errstate(invalid="ignore"):
            error = np.abs(a - b) / (1.0 + np.abs(b) if relative else 1.0)
        error[a == b] = 0.0
        wrong = ~(error <= tolerance)
        if not wrong.any():
            continue
        places = np.argwhere(wrong)
        worst = np.unravel_index(int(np.argmax(np.nan_to_num(error, nan=np.inf))), a.shape)

        def at(place: Sequence[Any], a: NDArray[Any] = a, b: NDArray[Any] = b) -> str:
            where = tuple(int(i) for i in place)
            return f"{list(where)} is {a[where]:.6g}, not {b[where]:.6g}"

        never = f"; {unwritten} elements are never written" if unwritten else ""
        return (
            f"output {index} {at(places[0])} (the first of {len(places)} wrong of {a.size}; the"
            f" worst {at(worst)}{never})"
        )
    return ""


def poison(array: NDArray[Any]) -> None:
    """Fill a contiguous array with the unwritten mark of its element width, in place."""
    raw = array.reshape(-1).view(np.uint8)
    if array.dtype.itemsize == 2:
        raw.view(np.uint16)[:] = POISON_HALF
    elif array.dtype.itemsize == 1:
        raw[:] = POISON_WORD & 0xFF
    else:
        raw.view(np.uint32)[:] = POISON_WORD


def unwritten(array: NDArray[Any]) -> NDArray[np.bool_]:
    """The elements of a contiguous array that still hold the unwritten mark.

    One-byte elements cannot carry a mark that no kernel writes, so none is reported for them.
    """
    flat = array.reshape(-1)
    width = array.dtype.itemsize
    if width == 2:
        return np.asarray(flat.view(np.uint16) == POISON_HALF)
    if width == 1:
        return np.zeros(flat.shape, dtype=bool)
    words = flat.view(np.uint32).reshape(flat.size, width // 4)
    return np.asarray((words == POISON_WORD).all(axis=1))


def _largest(values: NDArray[np.float64]) -> float:
    return float(values.max()) if values.size else 0.0


def _nonfinite_counts(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[int, ...]:
    return tuple(
        int(np.count_nonzero(test(array))) for array in (a, b) for test in (np.isnan, np.isinf)
    )


def _infinities_match(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    either = np.isinf(a) | np.isinf(b)
    return bool(np.array_equal(a[either], b[either]))


def ulps(out: NDArray[Any], ref: NDArray[Any]) -> NDArray[np.int64]:
    """Per element, the representable numbers of ``out``'s dtype between it and ``ref``; flat.

    Both must be finite. All zero for a dtype that is no float of 2 or 4 bytes.
    """
    width = {2: np.int16, 4: np.int32}.get(out.dtype.itemsize)
    if out.dtype.kind != "f" or width is None:
        return np.zeros(out.size, np.int64)
    with np.errstate(over="ignore"):
        target = np.asarray(ref).astype(out.dtype)
    x, y = (_ordered(np.ascontiguousarray(v).ravel(), width) for v in (out, target))
    return np.abs(x - y)


def output_digest(outputs: Sequence[NDArray[Any]]) -> str:
    """A digest of arrays' dtypes, shapes and elements in logical order, whatever their strides."""
    state = hashlib.blake2b(digest_size=12)
    for array in outputs:
        state.update(str((array.dtype.str, array.shape)).encode())
        state.update(array.tobytes())
    return state.hexdigest()


def _ordered(values: NDArray[Any], integer: Any) -> NDArray[np.int64]:
    """Map float bits to integers in numeric order; both zeros map to 0."""
    bits = values.view(integer).astype(np.int64)
    return np.where(bits < 0, np.int64(np.iinfo(integer).min) - bits, bits)
