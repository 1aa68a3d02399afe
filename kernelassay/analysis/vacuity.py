"""Tolerance vacuity: the largest relative error that a tolerance cannot see.

An output out = (1 + e) ref passes ``allclose(atol=t, rtol=t)`` iff |e ref| <= t + t |ref| for every
element, so the largest undetectable uniform relative error is the minimum over elements of
t (1 + |ref|) / |ref| = t (1 + 1 / max |ref|).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernelassay.analysis.sizes import Setting, resized
from kernelassay.execute.sandbox import run_limited
from kernelassay.inputs import official_inputs
from kernelassay.problem import Problem, load

SECONDS = 300.0
MEMORY_BYTES = 16 << 30


@dataclass(frozen=True, slots=True)
class BlindBand:
    """The blind band of one problem at one size, over its official inputs."""

    problem: str
    overrides: tuple[tuple[str, int], ...]
    tolerance: float
    largest_output: float
    mean_output: float
    undetectable: float | None
    zeros_pass: bool
    official_shape: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def blind_bands(
    problems: Sequence[Problem],
    settings: Sequence[Setting],
    tolerance: float,
) -> list[BlindBand]:
    """One band per problem and setting; problem code runs in a limited worker.

    Raises :class:`UsageError` for a size the problem does not have.
    """
    return [
        run_limited(
            blind_band,
            (resized(problem, setting), tolerance),
            seconds=SECONDS,
            memory_bytes=MEMORY_BYTES,
            where=problem.id,
        )
        for problem in problems
        for setting in settings
    ]


def blind_band(problem: Problem, tolerance: float) -> BlindBand:
    """Measure one band. Executes problem code: call it in a worker only."""
    import torch

    loaded = load(problem)
    largest, total, count = 0.0, 0.0, 0
    for spec in official_inputs():
        with torch.no_grad():
            out = loaded.build_model(42)(*loaded.draw(spec.seed))
        size = out.double().abs()
        largest = max(largest, float(size.max()))
        total += float(size.sum())
        count += size.numel()
    return BlindBand(
        problem=problem.id,
        overrides=problem.shrunk,
        tolerance=tolerance,
        largest_output=largest,
        mean_output=total / count,
        undetectable=tolerance * (1.0 + 1.0 / largest) if largest else None,
        zeros_pass=largest <= tolerance * (1.0 + largest),
        official_shape=problem.official_shape,
    )
