"""Small sizes for a problem that runs at its official ones.

Its targeted inputs are too many, and its other shapes too uncertain, to be tried at official sizes.
They are tried at small ones, on the same kernels: sizes are arguments. So the small sizes must give
the graph the structure that the official ones give it, constants that follow from a size included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from kernelassay.dataless import draw_layout, trace_layout
from kernelassay.errors import KernelassayError, ProblemError, UnsupportedError, UsageError
from kernelassay.execute.sandbox import run_limited
from kernelassay.input_shapes import Overrides, Small
from kernelassay.problem import Problem, load
from kernelassay.shrink import MEMORY_BYTES, SECONDS, shrink
from kernelassay.shrink_search import Budget

ROOMY = (16, 64)
"""Work and elements, as multiples of the usual budget's, where some size must stay as it is."""

Structure = Callable[[Overrides], str]


def small_sizes(problem: Problem) -> Small:
    """The sizes that shrinking finds, if they keep the graph's structure.

    Else those it finds when every size that changes the structure by itself stays. EXECUTES problem
    code; raises ``ProblemError`` where the official sizes cannot be traced.
    """
    structure = partial(_structure, problem)
    official = structure(())
    kept: frozenset[str] = frozenset()
    for budget in (Budget(), Budget().times(*ROOMY)):
        report = shrink(_holding(problem, kept), budget=budget)
        sizes = tuple(sorted(report.problem.shrunk))
        if report.reason:
            return Small(reason=f"it cannot be scaled down: {report.reason}")
        if structure(sizes) == official:
            return Small(sizes)
        kept = frozenset(_changing(structure, official, sizes))
        if not kept:
            break
    return Small(reason="at small sizes its graph has another structure")


def small_sizes_limited(problem: Problem) -> Small:
    """:func:`small_sizes` in a limited child; what the problem's code does wrong is the reason.

    Raises ``UsageError`` for a problem that is scaled down already.
    """
    if not problem.official_shape:
        raise UsageError(
            "is scaled down already, and was to run at its official sizes",
            where=problem.id,
            hint="choose one: shrink the problem, or run it at official scale",
        )
    try:
        return run_limited(
            small_sizes, (problem,), seconds=SECONDS, memory_bytes=MEMORY_BYTES, where=problem.id
        )
    except (ProblemError, UnsupportedError) as error:
        return Small(reason=str(error))


def _structure(problem: Problem, sizes: Overrides) -> str:
    loader = partial(load, problem, dict(sizes))
    return trace_layout(loader, draw_layout(loader)).signature()


def _holding(problem: Problem, names: Iterable[str]) -> Problem:
    """The problem for a search that may not move the levers ``names``."""
    held = set(names)
    return replace(problem, levers=tuple(x for x in problem.levers if x.name not in held))


def _changing(structure: Structure, official: str, sizes: Overrides) -> Iterator[str]:
    """The names of the ``sizes`` that change the structure when they move alone."""
    for name, size in sizes:
        try:
            if structure(((name, size),)) != official:
                yield name
        except KernelassayError:
            continue  # tied to another size
