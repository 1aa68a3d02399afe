"""The smallest case on which a kernel still fails: every step executes the kernel again.

A step is kept if the kernel fails in the same way: for the same reason of
:data:`~kernelassay.illusion.oracle.FAILURES` and, where that is the outcome of the run, with the
same outcome. A step from wrong elements to a crash would lead away to another fault.

First the case is simplified, its seed and dtype staying: layout, values, sizes, each drawn again.
Then, if the inputs are small, their elements are taken as they are: slices along a dimension are
left out, and elements become 0, 1, integers, or numbers of few digits. The search is deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay.errors import ProblemError, UsageError
from kernelassay.execute.execution import Bench
from kernelassay.illusion.bundle import STORED_BYTES, Bundle, made, plain
from kernelassay.illusion.cases import Case, laid_out
from kernelassay.illusion.trial import Examiner, Trial
from kernelassay.illusion.values import VALUES
from kernelassay.oracle import output_digest

EXECUTIONS = 200
SIMPLE = ("constant-rows", "unit", "uniform", "near-zero", "ascending", "opposed", "spiked")
"""Distributions from simple to less so; those with non-finite elements come after them."""
TINY = tuple(range(1, 8))
"""Sizes that are tried before a size is halved: a fault of ragged sizes is right at its halves."""

Arrays = tuple[NDArray[Any], ...]
Simpler = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest failing case that was found, after so many ``executions`` of the kernel.

    ``inputs`` are what the kernel failed on; the case does not draw them if they are ``explicit``.
    ``finished`` is false if the limit on executions ended the search. ``wrong`` names the first
    wrong element; ``bundle`` replays.
    """

    before: Case
    case: Case
    inputs: Arrays
    explicit: bool
    executions: int
    finished: bool
    wrong: str
    bundle: Bundle

    def to_json(self) -> dict[str, Any]:
        """Plain data; the elements of explicit inputs as nested lists."""
        explicit = [array.astype(np.float64).tolist() for array in self.inputs]
        data = {
            "before": self.before.record(),
            "case": self.case.record(),
            "inputs": explicit if self.explicit else None,
            "executions": self.executions,
            "finished": self.finished,
            "failure": self.bundle.expected.failure,
            "wrong": self.wrong,
        }
        shown: dict[str, Any] = plain(data)
        return shown

    def describe(self) -> str:
        """A few lines for a terminal."""
        found = self.bundle
        elements = [array.tolist() for array in self.inputs] if self.explicit else []
        lines = [
            f"{found.kernel}  ({found.language} on {found.device})",
            f"before: {self.before.in_words()}",
            f"now:    {self.case.in_words()}",
            *(f"input {at}: {values}" for at, values in enumerate(elements)),
            f"fails by {found.expected.failure}: {self.wrong}",
            f"{self.executions} executions" + ("" if self.finished else ", the limit"),
        ]
        return "\n".join(lines)


def shrink(
    examiner: Examiner,
    bench: Bench,
    case: Case,
    *,
    device: str,
    inputs: Sequence[NDArray[Any]] | None = None,
    executions: int = EXECUTIONS,
    any_size: bool = True,
    progress: Callable[[str], None] = lambda step: None,
) -> Shrunk:
    """Shrink a failing case, or the explicit ``inputs`` in its place.

    At most ``executions`` runs of the kernel, the first and the last of which confirm the failure;
    an input that the user's reference refuses counts as one.
    With ``any_size`` sizes may leave the schema's candidates, which are what the fuzzer draws from
    and need not hold the smallest that fails. Raises :class:`UsageError` if the kernel does not
    fail on the case.
    """
    search = _Search(examiner, bench, executions - 1, any_size, progress)
    search.begin(case, inputs)
    if inputs is None:
        search.simplify_case()
    if sum(array.nbytes for array in search.best.inputs) <= STORED_BYTES:
        search.simplify_elements()
    best = search.best
    again = examiner.run(bench, best.case, best.inputs)
    bundle = made(
        examiner,
        best,
        device,
        deterministic=again.kind == best.kind
        and again.judged.output_digest == best.judged.output_digest,
        explicit=search.explicit,
    )
    return Shrunk(
        before=case,
        case=best.case,
        inputs=best.inputs,
        explicit=search.explicit,
        executions=search.executed + 1,
        finished=search.executed < search.limit,
        wrong=examiner.wrong(best),
        bundle=bundle,
    )


class _Search:
    def __init__(
        self,
        examiner: Examiner,
        bench: Bench,
        limit: int,
        any_size: bool,
        progress: Callable[[str], None],
    ) -> None:
        self.examiner, self.bench, self.limit = examiner, bench, limit
        self.schema = examiner.op.schema
        self.any_size = any_size
        self.progress = progress
        self.executed = 0
        self.explicit = False
        self.best: Trial
        self._tried: set[object] = set()

    def begin(self, case: Case, inputs: Sequence[NDArray[Any]] | None) -> None:
        self.executed += 1
        self.best = self.examiner.run(self.bench, case, inputs)
        self.explicit = inputs is not None
        if not self.best.failure:
            raise UsageError(
                f"does not fail on {case.in_words()}",
                where=self.examiner.op.name,
                hint="only a failing case can be shrunk; is the kernel not deterministic?",
            )

    # ---- the case ------------------------------------------------------------------------------

    def simplify_case(self) -> None:
        """Layout, values and sizes in turn until none moves."""
        before = None
        while before != self.best.case:
            before = self.best.case
            self._try(replace(before, layout="contiguous"))
            for values in _simpler(self.best.case.values):
                if self._try(replace(self.best.case, values=values)):
                    break
            for name in self.schema.dims:
                while any(self._try(self._resized(name, size)) for size in self._below(name)):
                    pass

    def _resized(self, name: str, size: int) -> Case:
        sizes = {**dict(self.best.case.sizes), name: size}
        return replace(self.best.case, sizes=tuple(sizes.items()))

    def _below(self, name: str) -> Iterator[int]:
        """Smaller sizes: candidates, tiny ones, then less by the half, a quarter, ... and one."""
        now = dict(self.best.case.sizes)[name]
        candidates = self.schema.dims[name]
        less = [now >> shift for shift in range(1, now.bit_length())]
        free = [*TINY, *(now - step for step in less)] if self.any_size else []
        for size in dict.fromkeys((*sorted(candidates), *free)):
            if size < now:
                yield size

    # ---- the elements --------------------------------------------------------------------------

    def simplify_elements(self) -> None:
        """Leave out slices and simplify elements in turn until nothing moves."""
        before = None
        while before is not self.best:
            before = self.best
            self._try(replace(before.case, layout="contiguous"), before.inputs)
            for name in self.schema.dims:
                self._leave_out(name)
            for rank, simpler in enumerate(_SIMPLER):
                self._soften(rank, simpler)

    def _leave_out(self, name: str) -> None:
        """Drop slices along one dimension of all inputs, long ones first."""
        step = dict(self.best.case.sizes)[name] // 2
        while step >= 1:
            start = 0
            while start < (size := dict(self.best.case.sizes)[name]):
                end = min(start + step, size)
                if not self._try_without(name, start, end):
                    start = end
            step //= 2

    def _try_without(self, name: str, start: int, end: int) -> bool:
        size = dict(self.best.case.sizes)[name] - (end - start)
        if size < 1 or not (self.any_size or size in self.schema.dims[name]):
            return False
        kept = list(self.best.inputs)
        for position, dims in enumerate(self.schema.inputs.values()):
            for axis, dim in enumerate(dims):
                if dim == name:
                    kept[position] = np.delete(kept[position], slice(start, end), axis)
        return self._try(self._resized(name, size), kept)

    def _soften(self, rank: int, simpler: Simpler) -> None:
        """Make elements that are less simple than this simpler, many at once first."""
        flat = np.concatenate([array.ravel() for array in self.best.inputs])
        step = flat.size
        while step >= 1 and self.executed < self.limit:
            for start in range(0, flat.size, step):
                changed = flat.copy()
                for place in range(start, min(start + step, flat.size)):
                    if _rank(flat[place]) > rank:
                        changed[place] = _cast(simpler(float(flat[place])), flat[place])
                if self._try(self.best.case, self._split(changed)):
                    flat = changed
            step //= 2

    def _split(self, flat: NDArray[Any]) -> list[NDArray[Any]]:
        ends = np.cumsum([array.size for array in self.best.inputs])
        parts = np.split(flat, ends[:-1])
        return [p.reshape(a.shape) for p, a in zip(parts, self.best.inputs, strict=True)]

    # ---- one step ------------------------------------------------------------------------------

    def _try(self, case: Case, elements: Sequence[NDArray[Any]] | None = None) -> bool:
        """Whether the kernel fails on this as on the best, which it then replaces."""
        given = None
        if elements is not None:
            given = [laid_out(array, case.layout) for array in elements]
        digest = "" if given is None else output_digest(given)
        same = given is None or digest == output_digest(self.best.inputs)
        key = (case, digest)
        if (same and case == self.best.case) or key in self._tried:
            return False
        if self.executed >= self.limit:
            return False
        self._tried.add(key)
        self.executed += 1
        try:
            trial = self.examiner.run(self.bench, case, given)
        except ProblemError:  # the user's reference takes no such input
            return False
        if trial.kind != self.best.kind:
            return False
        self.best, self.explicit = trial, given is not None
        held = f"{sum(array.size for array in trial.inputs)} elements, " if self.explicit else ""
        self.progress(f"{self.executed} executions: {held}{case.in_words()}")
        return True


def _simpler(name: str) -> Iterator[str]:
    order = (*SIMPLE, *(other for other in VALUES if other not in SIMPLE))
    yield from order[: order.index(name)]


def _rank(element: Any) -> int:
    """How simple an element is: 0, 1, an integer of one digit, so many digits, the rest."""
    value = float(element)
    if not math.isfinite(value):
        return len(_SIMPLER)
    for rank, simple in enumerate((0.0, 1.0)):
        if value == simple:
            return rank
    if value == round(value) and abs(value) < 10:
        return 2
    ranks = (2 + n for n in (1, 2) if _cast(_rounded(n)(value), element) == element)
    return next(ranks, len(_SIMPLER))


def _cast(value: float, element: Any) -> Any:
    """A value in the dtype of an element; the element itself where that is not finite."""
    with np.errstate(over="ignore"):
        made = element.dtype.type(value)
    return made if np.isfinite(made) else element


def _integer(value: float) -> float:
    near = float(round(value)) if math.isfinite(value) else value
    return near if 0 < abs(near) < 10 else value


def _rounded(digits: int) -> Simpler:
    return lambda value: float(f"{value:.{digits - 1}e}")


_SIMPLER: Sequence[Simpler] = (
    lambda value: 0.0,
    lambda value: 1.0,
    _integer,
    _rounded(1),
    _rounded(2),
)
"""What an element of a higher rank than its place here may become, of that rank or a lower one."""
