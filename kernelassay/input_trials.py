"""The battery of a problem, settled by trying it.

Which shapes run and cost little, and which values the references bear, shows only when the problem
runs: everything here EXECUTES it, in a worker only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

from kernelassay.dataless import draw_layout, trace_layout
from kernelassay.errors import KernelassayError, ProblemError, UnsupportedError
from kernelassay.gate import VALIDITY_TOLERANCE
from kernelassay.input_shapes import GROWTH, SMALL_VOLUME, Overrides, Small, Verdict
from kernelassay.inputs import (
    CHECKERS,
    CHOICE_LIMIT,
    FULL,
    PROTOCOL,
    SMALL_WORK,
    InputSpec,
    battery,
    beside,
    draw,
    materialise,
    official_inputs,
    verified_inputs,
)
from kernelassay.measure import TooLargeError, measure
from kernelassay.problem import Problem, load
from kernelassay.protocol_inputs import drawn_inputs, has_sizes
from kernelassay.references import disagreement
from kernelassay.user.whole import accepts


@dataclass(frozen=True, slots=True)
class Settled:
    """The inputs of a problem; and ``moves``, each of one size alone, that keep its graph.

    ``frozen`` names the sizes that change the graph itself when they move. ``base`` has the sizes
    that moves start from, where those are not the problem's own; the moves include them.
    """

    specs: tuple[InputSpec, ...]
    moves: tuple[Overrides, ...]
    frozen: frozenset[str]
    base: Overrides = ()


def settled_battery(problem: Problem, size: str = FULL) -> tuple[InputSpec, ...]:
    """The inputs of :func:`settle`."""
    return settle(problem, size).specs


class Trying:
    """What a problem accepts, and what its references bear; remembered. EXECUTES it.

    A shape may cost twice the work and elements of the problem's own sizes, or 1 MFLOP and 32k
    elements where that is more.
    """

    def __init__(
        self, problem: Problem, signature: Callable[[Overrides], str] | None = None
    ) -> None:
        self.problem = problem
        try:
            own = measure(load(problem), fake=True)
        except ProblemError:  # the forward looks at values, which fake tensors have none of
            own = measure(load(problem))
        self._work = max(GROWTH * own.work, SMALL_WORK)
        self._elements = max(GROWTH * own.elements, SMALL_VOLUME)
        self._loaded = cache(lambda overrides: load(problem, dict(overrides)))
        self._verdict = cache(self._try)
        self._signature = signature or self._traced

    def fits(self, sizes: Mapping[str, int]) -> Verdict:
        """Whether the problem runs at these sizes, and costs little."""
        return self._verdict(tuple(sorted(sizes.items())))

    def _try(self, overrides: Overrides) -> Verdict:
        try:
            found = measure(self._loaded(overrides), element_limit=self._elements)
        except TooLargeError:
            return "too-large"
        except (ProblemError, UnsupportedError):
            return "refused"
        if found.work > self._work or found.elements > self._elements:
            return "too-large"
        kernel = self.problem.kernel
        if kernel is not None and not accepts(kernel, self._loaded(overrides)):
            return "refused"
        return "fits" if found.finite else "refused"

    def disagreement(self, spec: InputSpec) -> float:
        """How far the references differ on an input; infinite where one is not finite."""
        module = self._loaded(spec.overrides)
        inputs, state = materialise(module, spec)
        return disagreement(module, state, inputs, spec.seed)

    def values(self, spec: InputSpec) -> list[Any]:
        """What is drawn for an input."""
        return draw(self._loaded(spec.overrides), spec)

    def precise(self, spec: InputSpec) -> bool:
        """Whether the references agree on an input so well that correct kernels will, too."""
        return self.disagreement(spec) <= CHOICE_LIMIT * VALIDITY_TOLERANCE

    @cached_property
    def moves(self) -> tuple[tuple[Overrides, ...], frozenset[str]]:
        """Moves of one lever each, and the levers that change the graph itself when they move."""
        return _moves(self.problem, self.fits, self._signature)

    def _traced(self, overrides: Overrides) -> str:
        loader = partial(load, self.problem, dict(overrides))
        return trace_layout(loader, draw_layout(loader)).signature()


def settle(
    problem: Problem,
    size: str = FULL,
    signature: Callable[[Overrides], str] | None = None,
    kinds: tuple[str, ...] = (),
) -> Settled:
    """:func:`battery` with shapes that run and cost little, and values the references bear.

    ``size`` is one of :data:`inputs.BATTERIES`; ``signature`` traces the problem at some sizes, if
    the caller keeps graphs; ``kinds`` are those of :mod:`protocol_inputs` to draw after it.
    """
    trying = Trying(problem, signature)
    moves, frozen = trying.moves
    specs = battery(problem, size=size, trial=trying.fits, precise=trying.precise, frozen=frozen)
    drawn = drawn_inputs(problem, kinds, trying.fits, frozen)
    return Settled((*specs, *drawn), moves, frozen)


def settle_official(
    problem: Problem,
    small: Small,
    size: str = FULL,
    signature: Callable[[Overrides], str] | None = None,
    kinds: tuple[str, ...] = (),
) -> Settled:
    """The inputs of a problem that runs at its official sizes.

    These are what checkers draw, at those sizes, then the battery of the problem at ``small`` ones,
    if there are any. Only the latter is executed. ``size``, ``signature`` and ``kinds`` are as for
    :func:`settle`; what checkers draw at sizes of their own is small.
    """
    kinds = tuple(kind for kind in kinds if kind != "verified")  # it is there anyhow
    drawn = (*official_inputs(), *verified_inputs())
    if small.reason:
        own = drawn_inputs(problem, kinds, lambda moved: "refused")
        return Settled((*drawn, *own), (), frozenset())
    base = dict(small.sizes)

    def merged(moved: Overrides) -> Overrides:
        return tuple(sorted({**base, **dict(moved)}.items()))

    traced = None if signature is None else lambda moved: signature(merged(moved))
    settled = settle(replace(problem, shrunk=small.sizes), size, traced, kinds)
    specs = tuple(beside(s, small.sizes) for s in settled.specs if s.group not in CHECKERS)
    own = tuple(
        replace(s, overrides=merged(s.overrides)) if has_sizes(s) else s
        for s in settled.specs
        if s.group == PROTOCOL
    )
    moves = tuple(map(merged, settled.moves))
    return Settled((*drawn, *specs, *own), moves, settled.frozen, small.sizes)


def _moves(
    problem: Problem,
    fits: Callable[[Mapping[str, int]], Verdict],
    signature: Callable[[Overrides], str],
) -> tuple[tuple[Overrides, ...], frozenset[str]]:
    """Moves of one lever each, and the levers that change the graph itself when they move.

    A constant follows from the latter (a mean's divisor). A kernel holds such a constant as a
    literal, so an input of another size does not fit it.
    """

    def structure(overrides: Overrides) -> str:
        try:
            return signature(overrides)
        except KernelassayError:
            return "refused"

    moves: list[Overrides] = []
    frozen: set[str] = set()
    for lever in problem.sizes:
        candidates = [((lever.name, 2 * lever.value),), ((lever.name, lever.value + 1),)]
        fitting = next((moved for moved in candidates if fits(dict(moved)) == "fits"), None)
        if fitting is None:
            continue
        # One node stands for the whole forward that a user's kernel computes, at any sizes.
        if problem.kernel is not None or structure(fitting) == structure(()):
            moves.append(fitting)
        else:
            frozen.add(lever.name)
    return tuple(moves), frozenset(frozen)
