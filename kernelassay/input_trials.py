"""The battery of a problem, settled by trying it.

Which shapes run and cost little, and which values the references bear, shows only when the problem
runs: everything here EXECUTES it, in a worker only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from kernelassay.errors import KernelassayError, ProblemError, UnsupportedError
from kernelassay.gate import VALIDITY_TOLERANCE
from kernelassay.input_shapes import GROWTH, SMALL_VOLUME, Overrides, Verdict
from kernelassay.inputs import CHOICE_LIMIT, FULL, SMALL_WORK, InputSpec, battery, materialise
from kernelassay.measure import TooLargeError, measure
from kernelassay.problem import MODEL_SEED, LoadedProblem, Problem, load
from kernelassay.references import disagreement
from kernelassay.trace import trace
from kernelassay.user.whole import accepts


def settled_battery(
    problem: Problem, size: str = FULL, signature: str = ""
) -> tuple[InputSpec, ...]:
    """:func:`battery` with shapes that run and cost little, and values the references bear.

    ``size`` is one of :data:`inputs.BATTERIES`; ``signature`` is that of the graph at the problem's
    own sizes, if it is known.
    A shape may cost twice the work and elements of
    the problem's own sizes, or 1 MFLOP and 32k elements where that is more.
    """

    try:
        own = measure(load(problem), fake=True)
    except ProblemError:  # the forward looks at values, which fake tensors have none of
        own = measure(load(problem))
    work = max(GROWTH * own.work, SMALL_WORK)
    elements = max(GROWTH * own.elements, SMALL_VOLUME)
    loaded = cache(lambda overrides: load(problem, dict(overrides)))

    @cache
    def tried(overrides: Overrides) -> Verdict:
        try:
            found = measure(loaded(overrides), element_limit=elements)
        except TooLargeError:
            return "too-large"
        except (ProblemError, UnsupportedError):
            return "refused"
        if found.work > work or found.elements > elements:
            return "too-large"
        if problem.kernel is not None and not accepts(problem.kernel, loaded(overrides)):
            return "refused"
        return "fits" if found.finite else "refused"

    def precise(spec: InputSpec) -> bool:
        module = loaded(spec.overrides)
        inputs, state = materialise(module, spec)
        return disagreement(module, state, inputs, spec.seed) <= CHOICE_LIMIT * VALIDITY_TOLERANCE

    return battery(
        problem,
        size=size,
        trial=lambda moved: tried(tuple(moved.items())),
        precise=precise,
        frozen=_structural(problem, loaded, tried, signature),
    )


def _structural(
    problem: Problem,
    loaded: Callable[[Overrides], LoadedProblem],
    tried: Callable[[Overrides], Verdict],
    own: str,
) -> frozenset[str]:
    """Levers that change the traced graph itself: a constant follows from them (a mean's divisor).

    A kernel holds such a constant as a literal, so an input of another size does not fit it.
    """

    def signature(overrides: Overrides) -> str:
        module = loaded(overrides)
        try:
            traced = trace(module.build_model(MODEL_SEED), tuple(module.draw(MODEL_SEED)))
        except KernelassayError:
            return "refused"
        return traced.signature()

    frozen: set[str] = set()
    if problem.kernel is not None:
        return frozenset()  # one node stands for the whole forward, at any sizes
    for lever in problem.sizes:
        candidates = [((lever.name, 2 * lever.value),), ((lever.name, lever.value + 1),)]
        fitting = next((moved for moved in candidates if tried(moved) == "fits"), None)
        if fitting is None:
            continue
        own = own or signature(())
        if signature(fitting) != own:
            frozen.add(lever.name)
    return frozenset(frozen)
