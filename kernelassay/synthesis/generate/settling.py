"""From wishes to inputs: sizes that a problem accepts, values that its references bear.

References alone decide here; no kernel runs. Everything runs in a limited process, since it
EXECUTES the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kernelassay.errors import KernelassayError
from kernelassay.execute.sandbox import run_limited
from kernelassay.input_shapes import fitting
from kernelassay.input_trials import Trying
from kernelassay.input_values import MOSAIC
from kernelassay.inputs import InputSpec, digest
from kernelassay.problem import MODEL_SEED, Problem, load
from kernelassay.synthesis.generate.target import Wish, named

SECONDS = 600.0
MEMORY_BYTES = 16 << 30

R = TypeVar("R")
Layout = tuple[tuple[str, tuple[int, ...]], ...]


def settled(
    problem: Problem, wishes: Sequence[Wish], count: int
) -> tuple[tuple[InputSpec, str], ...]:
    """The first ``count`` inputs that wishes become, each once, and what each is aimed at.

    A wish is passed over if no alternative suits, or if all became inputs already. Raises
    ``ProblemError`` if the problem does not run within limits.
    """
    return _limited(_settle, problem, tuple(wishes), count)


def settled_each(problem: Problem, specs: Sequence[InputSpec]) -> tuple[InputSpec | None, ...]:
    """What each of some inputs becomes; None where the references are not precise on it.

    Raises as :func:`settled`.
    """
    return _limited(_settle_each, problem, tuple(specs))


def mosaics(
    problem: Problem, grounds: Sequence[InputSpec], kinds: Sequence[Sequence[str]], count: int
) -> tuple[InputSpec, ...]:
    """At the sizes of each of some inputs, a mosaic of as many kinds of values as references bear.

    Of each kind, given as transforms from the most telling to the mildest, the first is added that
    leaves the whole precise. Kinds end where no slice is left for another. Raises as
    :func:`settled`.
    """
    return _limited(_mosaics, problem, tuple(grounds), tuple(kinds), count)


def layouts(problem: Problem, sizes: Sequence[Mapping[str, int]]) -> tuple[Layout | str, ...]:
    """The dtypes and shapes of a problem's inputs at some sizes; a text where they do not fit.

    Of a number it is the type, without a shape. Raises as :func:`settled`.
    """
    return _limited(_layouts, problem, tuple(sizes))


def _limited(function: Callable[..., R], problem: Problem, *arguments: Any) -> R:
    return run_limited(
        function,
        (problem, *arguments),
        seconds=SECONDS,
        memory_bytes=MEMORY_BYTES,
        where=problem.id,
    )


class _Settling:
    """EXECUTES the problem: in a worker only."""

    def __init__(self, problem: Problem, *, moves: bool) -> None:
        self.problem = problem
        self.trying = Trying(problem)
        frozen = self.trying.moves[1] if moves else frozenset()
        self.levers = [lever for lever in problem.sizes if lever.name not in frozen]

    def sized(self, wished: InputSpec) -> InputSpec:
        """An input at the nearest sizes that the problem accepts."""
        wanted = dict(wished.overrides)
        mine = [lever for lever in self.levers if lever.name in wanted]
        moved = fitting(self.problem, mine, wanted, self.trying.fits)
        return named(replace(wished, overrides=tuple(sorted(moved.items()))))

    def suits(self, one: InputSpec) -> bool:
        """Whether references are precise on an input."""
        try:
            return self.trying.precise(one)
        except KernelassayError:  # not even drawn at these sizes
            return False

    def same(self, one: InputSpec, other: InputSpec) -> bool:
        """Whether two inputs have the same values."""
        first, second = (self.trying.values(spec) for spec in (one, other))
        return digest(first) == digest(second)


def _settle(
    problem: Problem, wishes: Sequence[Wish], count: int
) -> tuple[tuple[InputSpec, str], ...]:
    moves = any(one.overrides for wish in wishes for one in wish.alternatives)
    settling = _Settling(problem, moves=moves)
    chosen: dict[InputSpec, str] = {}
    for wish in wishes:
        if len(chosen) >= count:
            break
        new = [one for one in map(settling.sized, wish.alternatives) if one not in chosen]
        taken = next((one for one in new if not wish.checked or settling.suits(one)), None)
        if taken is not None:
            chosen.setdefault(taken, wish.why)
    return tuple(chosen.items())


def _settle_each(problem: Problem, specs: Sequence[InputSpec]) -> tuple[InputSpec | None, ...]:
    settling = _Settling(problem, moves=any(one.overrides for one in specs))
    sized = map(settling.sized, specs)
    return tuple(one if settling.suits(one) else None for one in sized)


def _mosaics(
    problem: Problem, grounds: Sequence[InputSpec], kinds: Sequence[Sequence[str]], count: int
) -> tuple[InputSpec, ...]:
    settling = _Settling(problem, moves=any(one.overrides for one in grounds))
    chosen: dict[InputSpec, None] = {}
    for ground in dict.fromkeys(map(settling.sized, grounds)):
        if len(chosen) >= count:
            break
        parts: tuple[str, ...] = ()
        for kind in kinds:
            if parts and settling.same(_with(ground, parts), _with(ground, (*parts, kind[0]))):
                break
            tries = ((*parts, one) for one in kind if one not in parts)
            whole = (t for t in tries if settling.suits(_with(ground, t)))
            parts = next(whole, parts)
        if parts:
            chosen.setdefault(named(_with(ground, parts)))
    return tuple(chosen)


def _with(ground: InputSpec, parts: Sequence[str]) -> InputSpec:
    return replace(ground, transform=MOSAIC.join(parts))


def _layouts(problem: Problem, sizes: Sequence[Mapping[str, int]]) -> tuple[Layout | str, ...]:
    settling = _Settling(problem, moves=any(sizes))
    names = {lever.name for lever in settling.levers}

    def layout(wanted: Mapping[str, int]) -> Layout | str:
        if not wanted.keys() <= names:
            return "changes the graph"
        verdict = settling.trying.fits(wanted)
        if verdict != "fits":
            return verdict
        drawn = load(problem, wanted).draw(MODEL_SEED)
        return tuple(
            (str(value.dtype).removeprefix("torch."), tuple(value.shape))
            if hasattr(value, "shape")
            else (type(value).__name__, ())
            for value in drawn
        )

    return tuple(map(layout, sizes))
