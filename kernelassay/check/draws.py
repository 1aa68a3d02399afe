"""The inputs that a candidate cannot know: drawn from a seed that is fresh for each check."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from dataclasses import replace

from kernelassay.inputs import InputSpec, has_parameters
from kernelassay.problem import Problem

HIDDEN = "hidden"
_VALUES = ("official", "official", "official", "sign-mixed", "sign-mixed-5", "ramp")
_SEEDS = 2**31


def fresh_seed() -> int:
    """A seed from the operating system's entropy."""
    return secrets.randbits(48)


def hidden_inputs(
    problem: Problem, seed: int, *, shapes: bool, count: int = len(_VALUES)
) -> tuple[InputSpec, ...]:
    """Inputs with fresh seeds: drawn values and like ones, dense ones, other parameters and sizes.

    With ``shapes`` two are of sizes that ``seed`` chooses; those that do not run are refused later.
    """
    source = random.Random(seed)
    found = [_spec(source, f"{index}/{name}", name) for index, name in enumerate(_VALUES[:count])]
    # Like the first in its ends, first half, sum and extremes: for results that are kept by those.
    found.append(replace(found[0], id=f"{HIDDEN}/alike", transform="tail-reversed"))
    if has_parameters(problem):
        for index in range(2):
            parameters = f"seeded:{source.randrange(_SEEDS)}"
            found.append(_spec(source, f"parameters-{index}", "official", parameters=parameters))
    if shapes and problem.sizes:
        for index in range(2):
            lever = source.choice(problem.sizes)
            size = source.randint(max(1, lever.value // 2), 2 * lever.value)
            moved = ((lever.name, size),)
            found.append(_spec(source, f"{lever.name}={size}-{index}", "official", moved))
    return tuple(found)


def _spec(
    source: random.Random,
    name: str,
    transform: str,
    overrides: Sequence[tuple[str, int]] = (),
    parameters: str = "official",
) -> InputSpec:
    seed = source.randrange(_SEEDS)
    return InputSpec(
        f"{HIDDEN}/{name}", HIDDEN, seed, transform, tuple(overrides), parameters=parameters
    )
