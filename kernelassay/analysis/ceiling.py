"""The ceiling: the largest input scale at which correct kernels still pass a tolerance.

Correct kernels round, each in its own order. Where terms of both signs cancel, the sum is small and
its rounding is not, so that beyond some scale a tolerance rejects kernels that are right. Inputs
past the ceiling cannot judge anybody. It is located by walking up in powers and bisecting the last
step, on values that are a dense draw times the scale.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kernelassay import gate, population
from kernelassay.analysis.plain import plain
from kernelassay.cell import OK
from kernelassay.errors import DeviceError, KernelassayError, UnsupportedError
from kernelassay.execute.bench import ORIGINAL
from kernelassay.execute.crew import each
from kernelassay.execute.sandbox import run_limited
from kernelassay.execute.toolbox import Toolbox
from kernelassay.execute.worker import UnitResult, UnitRunner, Worker
from kernelassay.inputs import GIVEN, InputSpec
from kernelassay.problem import Problem, load
from kernelassay.shrink import shrink_limited
from kernelassay.tasks import run_task

SIGN_MIXED, SAME_SIGN = "sign-mixed", "same-sign"
KINDS = (SIGN_MIXED, SAME_SIGN)
"""Dense values of mean 0 and variance 1, and the same without their signs."""

STEP = 10.0
PRECISION = 1.05
"""The walk's factor, and how far apart the last scale that passes and the next may lie."""

LOCATED, NEVER, FAILS, UNDEFINED = "located", "never", "fails at scale 1", "not finite at scale 1"

Progress = Callable[[str], None]

DRAW_SECONDS = 300.0
DRAW_BYTES = 16 << 30


@dataclass(frozen=True, slots=True)
class Judged:
    """The correct kernels at one scale.

    ``kernel`` strays most, by ``error`` (critical tolerance against float64), infinite if it has no
    fit output; ``outcome`` is that of its run. ``reference_error`` is that of the float32
    reference, ``failing`` counts the kernels beyond the tolerance. ``None`` stands for a scale at
    which inputs or references are not finite.
    """

    kernel: str
    error: float
    outcome: str
    reference_error: float
    failing: int


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What was found for one kind of values.

    ``scale`` is the largest at which all correct kernels passed, ``beyond`` the next that was
    tried: a kernel fails there (``status`` located), or nothing is finite (never). It is None where
    the search was not to go further. ``first`` tells of the kernel, None where none failed.
    ``tried`` counts the scales.
    """

    kind: str
    status: str
    scale: float | None
    beyond: float | None
    first: Judged | None
    tried: int


@dataclass(frozen=True, slots=True)
class ProblemCeilings:
    """The ceilings of one problem; ``refused`` tells why there are none.

    ``kernels`` counts the correct ones: originals and benign variants. ``sizes`` are those that
    differ from the file's own.
    """

    problem: str
    sizes: tuple[tuple[str, int], ...]
    official_shape: bool
    tolerance: float
    precision: float
    seed: int
    kernels: int
    ceilings: tuple[Ceiling, ...]
    refused: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Plain data; an infinite error is null."""
        return plain(self)


@dataclass(frozen=True, slots=True)
class CeilingOptions:
    """What is asked of each problem. ``shrink`` leaves the own suite's problems as they are.

    No scale beyond ``up_to`` is tried.
    """

    tolerance: float
    styles: tuple[str, ...]
    seed: int = 1
    shrink: bool = False
    up_to: float = math.inf
    jobs: int = 1


def locate(
    kind: str,
    judge: Callable[[float], Judged | None],
    tolerance: float,
    up_to: float = math.inf,
) -> Ceiling:
    """Walk up from scale 1 while kernels pass, then bisect (geometrically) the last step.

    What fails only between two steps that pass is not seen.
    """
    tried = 1
    found = judge(1.0)
    if found is None or found.error > tolerance:
        return Ceiling(kind, FAILS if found else UNDEFINED, None, 1.0, found, tried)
    low, high = 1.0, 1.0
    while found is not None and found.error <= tolerance:
        if high >= up_to:
            return Ceiling(kind, NEVER, high, None, None, tried)
        low, high = high, min(high * STEP, up_to)
        found = judge(high)
        tried += 1
    while high > low * PRECISION:
        middle = math.sqrt(low * high)
        between = judge(middle)
        tried += 1
        if between is not None and between.error <= tolerance:
            low = middle
        else:
            high, found = middle, between
    return Ceiling(kind, LOCATED if found else NEVER, low, high, found, tried)


def ceilings(
    problems: Sequence[Problem],
    tools: Toolbox,
    options: CeilingOptions,
    progress: Progress = lambda step: None,
) -> Iterator[ProblemCeilings]:
    """The ceilings of each problem, as they are done; ``progress`` is told of every scale."""

    def one(problem: Problem, worker: Worker) -> ProblemCeilings:
        return problem_ceilings(problem, worker, tools, options, progress)

    return each(problems, tools, options.jobs, one)


def problem_ceilings(
    problem: Problem,
    worker: UnitRunner,
    tools: Toolbox,
    options: CeilingOptions,
    progress: Progress = lambda step: None,
) -> ProblemCeilings:
    """The ceilings of one problem. Raises :class:`DeviceError`, which says nothing of it."""
    start = time.monotonic()
    found: tuple[Ceiling, ...] = ()
    kernels, refused = 0, ""
    try:
        progress(f"{problem.id}: building the correct kernels")
        if options.shrink and problem.origin != "suite":
            report = run_task(shrink_limited, problem)
            if report.reason:
                raise UnsupportedError(f"cannot be shrunk: {report.reason}", where=problem.id)
            problem = report.problem
        calls = worker.open(problem)
        correct = run_task(population.correct_kernels, problem.id, calls, tools, options.styles)
        if not correct.originals:
            raise UnsupportedError(
                f"no kernel has the style {' or '.join(options.styles)}", where=problem.id
            )
        kernels = len(correct.originals) + len(correct.benign)
        with TemporaryDirectory(prefix="kernelassay-ceiling-") as folder:
            scaling = run_task(draw_limited, problem, Path(folder), options.seed)

            def judge(kind: str, scale: float) -> Judged | None:
                progress(f"{problem.id}: {kind} x {scale:.3g}")
                spec = _Values(Path(folder), kind, scaling).at(scale, options.seed)
                if spec is None:
                    return None
                unit = worker.measure(spec, correct.originals, correct.benign)
                return judged(unit, options.tolerance)

            found = tuple(
                locate(kind, partial(judge, kind), options.tolerance, options.up_to)
                for kind in KINDS
            )
    except DeviceError:
        raise
    except KernelassayError as error:
        refused = str(error)
    return ProblemCeilings(
        problem=problem.id,
        sizes=problem.shrunk,
        official_shape=problem.official_shape,
        tolerance=options.tolerance,
        precision=PRECISION,
        seed=options.seed,
        kernels=kernels,
        ceilings=found,
        refused=refused,
        seconds=round(time.monotonic() - start, 1),
    )


# ---- values --------------------------------------------------------------------------------------


def draw_limited(problem: Problem, folder: Path, seed: int) -> tuple[int, ...]:
    """Write the values of each kind at scale 1; the places of the inputs that scale.

    Raises ``ProblemError`` where the file cannot draw, ``UnsupportedError`` if no input scales.
    """
    places = run_limited(
        _draw,
        (problem, str(folder), seed),
        seconds=DRAW_SECONDS,
        memory_bytes=DRAW_BYTES,
        where=problem.id,
    )
    if not places:
        raise UnsupportedError(
            "no input scales: they are integers, labels or distributions", where=problem.id
        )
    return tuple(places)


def _draw(problem: Problem, folder: str, seed: int) -> list[int]:
    """EXECUTES the problem file: in a worker only."""
    import torch

    from kernelassay.input_values import Source, Transform, transformed

    def signed(factor: float, x: torch.Tensor, source: Source) -> torch.Tensor:
        return source.mixed(x) * factor

    def unsigned(factor: float, x: torch.Tensor, source: Source) -> torch.Tensor:
        return source.mixed(x).abs() * factor

    drawn = load(problem).draw(seed)
    places: list[int] = []
    for kind, values in zip(KINDS, (signed, unsigned), strict=True):
        once, twice = (
            transformed(drawn, Transform(kind, "", partial(values, factor)), seed)
            for factor in (1.0, 2.0)
        )
        # A tensor that is kept as drawn, or in its domain (rows that sum to one), does not double.
        places = [
            index
            for index, (a, b) in enumerate(zip(once, twice, strict=True))
            if isinstance(a, torch.Tensor) and a.is_floating_point() and bool((2 * a == b).all())
        ]
        torch.save(once, _stored(Path(folder), kind))
    return places


def _stored(folder: Path, kind: str) -> Path:
    return folder / f"{kind}.pt"


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of one kind: drawn once, and scaled where ``places`` say."""

    folder: Path
    kind: str
    places: tuple[int, ...]

    def at(self, scale: float, seed: int) -> InputSpec | None:
        """The input at a scale, None if its values are not finite. Later ones overwrite it."""
        import torch

        held = torch.load(_stored(self.folder, self.kind))
        for place in self.places:
            held[place] = (held[place].to(torch.float32) * scale).to(held[place].dtype)
            if not bool(held[place].isfinite().all()):
                return None
        path = self.folder / "scaled.pt"
        torch.save(held, path)
        name = f"{self.kind}-x{scale:.4g}"
        return InputSpec(name, "ceiling", seed, f"{GIVEN}{path}")


# ---- one scale -----------------------------------------------------------------------------------


def judged(unit: UnitResult, tolerance: float) -> Judged | None:
    """The correct kernels on one input, None if references are not finite.

    Raises :class:`UnsupportedError` if the input could not be measured, :class:`DeviceError` if the
    machine failed a kernel.
    """
    if unit.facts is not None and not unit.facts.finite:
        return None
    if unit.rejected or unit.facts is None:
        raise UnsupportedError(unit.rejected)
    cells = [c for c in unit.fixed if c.candidate.startswith(f"{ORIGINAL}/")] + unit.cells
    for cell in cells:
        if cell.lost:
            raise DeviceError(f"{cell.candidate} was lost: {cell.detail}", where=cell.input)
    errors = {cell.candidate: gate.exact_error(cell) for cell in cells}
    worst = max(cells, key=lambda cell: errors[cell.candidate])  # the first of equals
    return Judged(
        kernel=worst.candidate,
        error=errors[worst.candidate],
        outcome="" if worst.outcome == OK else worst.outcome,
        reference_error=unit.facts.reference_error,
        failing=sum(error > tolerance for error in errors.values()),
    )
