"""From wishes to inputs: sizes that a problem accepts, values that its references bear.

References alone decide here; no kernel runs. Everything runs in a limited process, since it
EXECUTES the problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelassay.errors import KernelassayError
from kernelassay.execute.sandbox import run_limited
from kernelassay.input_shapes import fitting
from kernelassay.input_trials import Trying
from kernelassay.inputs import InputSpec
from kernelassay.problem import Problem
from kernelassay.synthesis.generate.target import Wish, named

SECONDS = 600.0
MEMORY_BYTES = 16 << 30


def settled(problem: Problem, wishes: Sequence[Wish], count: int) -> tuple[InputSpec, ...]:
    """The first ``count`` inputs that wishes become, each once.

    A wish is passed over if no alternative suits, or if all became inputs already. Raises
    ``ProblemError`` if the problem does not run within limits.
    """
    return run_limited(
        _settle,
        (problem, tuple(wishes), count),
        seconds=SECONDS,
        memory_bytes=MEMORY_BYTES,
        where=problem.id,
    )


def _settle(problem: Problem, wishes: Sequence[Wish], count: int) -> tuple[InputSpec, ...]:
    trying = Trying(problem)
    frozen = trying.moves[1] if any(s.overrides for w in wishes for s in w.alternatives) else ()
    levers = [lever for lever in problem.sizes if lever.name not in frozen]
    chosen: dict[InputSpec, None] = {}

    def sized(wished: InputSpec) -> InputSpec:
        wanted = dict(wished.overrides)
        mine = [lever for lever in levers if lever.name in wanted]
        moved = fitting(problem, mine, wanted, trying.fits)
        return named(replace(wished, overrides=tuple(sorted(moved.items()))))

    def suits(one: InputSpec) -> bool:
        try:
            return trying.precise(one)
        except KernelassayError:  # not even drawn at these sizes
            return False

    for wish in wishes:
        if len(chosen) >= count:
            break
        new = [one for one in map(sized, wish.alternatives) if one not in chosen]
        taken = next((one for one in new if not wish.checked or suits(one)), None)
        if taken is not None:
            chosen.setdefault(taken)
    return tuple(chosen)
