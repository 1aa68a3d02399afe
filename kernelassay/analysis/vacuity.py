"""Tolerance vacuity: the errors that a tolerance cannot see.

An output out = (1 + e) ref passes ``allclose(atol=t, rtol=t)`` iff |e ref| <= t + t |ref| for every
element, so the largest undetectable uniform relative error is the minimum over elements of
t (1 + |ref|) / |ref| = t (1 + 1 / max |ref|). Where it is large, outputs pass that have nothing to
do with the reference: zeros, a copy of an input, noise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelassay.analysis.plain import plain
from kernelassay.analysis.sizes import Setting, resized
from kernelassay.execute.sandbox import run_limited
from kernelassay.inputs import official_inputs
from kernelassay.oracle import AcceptanceRule, Verdict, grade, merge
from kernelassay.problem import Problem, load

if TYPE_CHECKING:
    import torch

SECONDS = 300.0
MEMORY_BYTES = 16 << 30

ZEROS, COPY, NOISE = "zeros", "copy", "noise"


@dataclass(frozen=True, slots=True)
class BlindBand:
    """The blind band of one problem at one size, over its official inputs.

    Three outputs that know nothing of the computation: zeros; a copy of the first input of the
    (first) output's shape; noise of the mean and standard deviation of the output itself. Each
    ``passes`` if the tolerance accepts it on all official inputs; its ``error`` is the smallest
    tolerance that would. ``None``: no input has that shape, or the output has no spread, so that
    noise would be the output.
    """

    problem: str
    overrides: tuple[tuple[str, int], ...]
    tolerance: float
    largest_output: float
    mean_output: float
    undetectable: float | None
    zeros_pass: bool
    copy_passes: bool | None
    noise_passes: bool | None
    zeros_error: float
    copy_error: float | None
    noise_error: float | None
    official_shape: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return plain(self)


@dataclass(frozen=True, slots=True)
class Growth:
    """How the largest undetectable error of a problem grows with one of its sizes.

    As size ** ``exponent``, by least squares on logarithms, from ``smallest`` to ``largest``, the
    other sizes that were set being ``others``.
    """

    problem: str
    size: str
    others: Setting
    smallest: int
    largest: int
    exponent: float


def growth(bands: Sequence[BlindBand]) -> list[Growth]:
    """The growth over the bands of each problem in which one size takes several values.

    Bands that differ in other sizes too, or are unbounded, tell nothing and are left out.
    """
    groups: dict[tuple[str, str, Setting], dict[int, float]] = {}
    for band in bands:
        for name, value in band.overrides:
            others = tuple(sorted(pair for pair in band.overrides if pair[0] != name))
            if band.undetectable is not None:
                group = groups.setdefault((band.problem, name, others), {})
                group[value] = band.undetectable
    return [
        Growth(problem, name, others, min(found), max(found), _slope(found))
        for (problem, name, others), found in groups.items()
        if len(found) > 1
    ]


def _slope(found: Mapping[int, float]) -> float:
    xs, ys = ([math.log(value) for value in values] for values in (found.keys(), found.values()))
    return statistics.linear_regression(xs, ys).slope


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
    loaded = load(problem)
    largest, total, count = 0.0, 0.0, 0
    verdicts: dict[str, list[Verdict]] = {ZEROS: [], COPY: [], NOISE: []}
    for spec in official_inputs():
        inputs = loaded.draw(spec.seed)
        drawn = [x.clone() if hasattr(x, "clone") else x for x in inputs]  # a forward may write
        outputs = loaded.forward(loaded.build_model(), inputs)
        for out in outputs:
            size = out.double().abs()
            largest = max(largest, float(size.max()))
            total += float(size.sum())
            count += size.numel()
        for name, made in _uninformed(outputs, drawn, spec.seed).items():
            pairs = zip(made, outputs, strict=True)
            verdicts[name].append(merge([grade(m.numpy(), o.numpy()) for m, o in pairs]))
    rule = AcceptanceRule(tolerance)
    error = {
        name: max((v.critical_tolerance for v in found), default=None)
        for name, found in verdicts.items()
    }
    passes = {
        name: all(map(rule.accepts, found)) if found else None for name, found in verdicts.items()
    }
    return BlindBand(
        problem=problem.id,
        overrides=problem.shrunk,
        tolerance=tolerance,
        largest_output=largest,
        mean_output=total / count,
        undetectable=tolerance * (1.0 + 1.0 / largest) if largest else None,
        zeros_pass=bool(passes[ZEROS]),
        copy_passes=passes[COPY],
        noise_passes=passes[NOISE],
        zeros_error=error[ZEROS] or 0.0,
        copy_error=error[COPY],
        noise_error=error[NOISE],
        official_shape=problem.official_shape,
    )


def _uninformed(
    outputs: Sequence[torch.Tensor], inputs: Sequence[Any], seed: int
) -> dict[str, list[torch.Tensor]]:
    """What might stand in the place of outputs, by name; without those there are not."""
    import torch

    found = {ZEROS: [torch.zeros_like(out) for out in outputs]}
    shape, dtype = outputs[0].shape, outputs[0].dtype
    same = (x for x in inputs if isinstance(x, torch.Tensor) and x.shape == shape)
    first = next(same, None)
    if first is not None:
        found[COPY] = [first.to(dtype), *outputs[1:]]
    if any(_spread(out) > 0.0 for out in outputs):
        found[NOISE] = [_noise(out, seed, index) for index, out in enumerate(outputs)]
    return found


def _spread(out: torch.Tensor) -> float:
    spread = float(out.double().std(correction=0))
    return spread if math.isfinite(spread) else 0.0


def _noise(out: torch.Tensor, seed: int, index: int) -> torch.Tensor:
    """Dense noise with the mean and the standard deviation of an output, in its dtype."""
    from kernelassay.input_values import Source, generator_for

    noise = Source(generator_for(seed, index)).mixed(out).double()
    noise = noise * _spread(out) + out.double().mean()
    return (noise if out.dtype.is_floating_point else noise.round()).to(out.dtype)
