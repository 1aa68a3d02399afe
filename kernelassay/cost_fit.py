"""Fitting the coefficients of :mod:`kernelassay.cost` to measured seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kernelassay.cost import (
    ANY,
    CANDIDATE,
    ORIGINAL,
    PREPARE,
    Coefficients,
    Machine,
    call_and_style,
)
from kernelassay.timing import UnitTiming, Work

Array = NDArray[np.float64]

MIN_SAMPLES = 6
MIN_WORKS = 3
"""Fewer samples, or fewer different works among them, only scale the coefficients there are."""

SHORTEST = 1e-7
"""Seconds below which nothing is measured."""

_BALANCES = 32
_STEPS = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """Some work, and the seconds it took."""

    work: Work
    seconds: float


def fit(units: Iterable[UnitTiming], machine: Machine, provenance: str) -> Machine:
    """``machine`` with what the timings of units tell; what they do not tell stays."""
    known = [unit for unit in units if unit.work is not None]
    fitted = fit_kernels(_kernel_samples(known), machine, provenance)
    table = dict(fitted.table)
    for kind, samples in _other_samples(known).items():
        general = table[kind.partition(":")[0]]  # fitted by now: it comes first
        table[kind] = fit_coefficients(samples, general)
    return replace(fitted, table=table)


def fit_kernels(
    samples: Mapping[str, Sequence[Sample]], machine: Machine, provenance: str
) -> Machine:
    """``machine`` with what runs of kernels tell, by ``<template>/<style>``."""
    general: dict[str, list[Sample]] = defaultdict(list)
    for key, found in sorted(samples.items()):
        general[ANY] += found
        general[f"{ANY}/{key.partition('/')[2]}"] += found
    fitted = replace(machine, provenance=provenance)
    # The general ones come first: what has few samples of its own starts from them.
    for key, found in (*general.items(), *sorted(samples.items())):
        template, _, style = key.partition("/")
        before = fitted.table[ANY] if key == ANY else fitted.of(template, style)
        fitted = replace(fitted, table={**fitted.table, key: fit_coefficients(found, before)})
    return fitted


def _kernel_samples(units: Iterable[UnitTiming]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for unit in units:
        assert unit.work is not None
        for original, seconds in unit.timing.kernels.items():
            name, style = call_and_style(original)
            call = unit.work.calls[name]
            found[f"{call.template}/{style}"].append(Sample(call.kernel, seconds))
    return found


def _other_samples(units: Iterable[UnitTiming]) -> dict[str, list[Sample]]:
    """Of one preparation, one original, one run of a candidate; special kinds come last."""
    found: dict[str, list[Sample]] = {PREPARE: [], ORIGINAL: [], CANDIDATE: []}
    special: dict[str, list[Sample]] = defaultdict(list)
    for unit in units:
        work, timing = unit.work, unit.timing
        assert work is not None
        if timing.prepare:
            found[PREPARE].append(Sample(work.forward, timing.prepare))
        calls = [work.calls[call_and_style(name)[0]] for name in timing.kernels]
        if calls:
            total, count = sum((call.kernel + call.after for call in calls), Work()), len(calls)
            mean = Work(total.flops // count, total.bytes // count)
            found[ORIGINAL].append(Sample(mean, timing.fixed / count))
        for original, runs in timing.runs.items():
            name, style = call_and_style(original)
            call = work.calls[name]
            sample = Sample(call.kernel + call.after, timing.candidates[original] / runs)
            found[CANDIDATE].append(sample)
            special[f"{CANDIDATE}:{call.template}/{style}"].append(sample)
    return {kind: samples for kind, samples in (found | special).items() if samples}


def fit_coefficients(samples: Sequence[Sample], before: Coefficients) -> Coefficients:
    """The coefficients with the least mean distance of log predicted to log measured.

    For a fixed balance (FLOP per byte at which both take equally long) the seconds are linear in
    the overhead and the rate, which a least-squares fit of relative errors finds that is made
    robust by weights; the balance is searched. What no sample is bound by is not told: its rate
    is then the least that agrees with that.
    """
    seconds = np.array([max(sample.seconds, SHORTEST) for sample in samples])
    flops = np.array([float(sample.work.flops) for sample in samples])
    moved = np.array([float(sample.work.bytes) for sample in samples])
    predicted = np.array([before.seconds(sample.work) for sample in samples])
    if len(samples) < MIN_SAMPLES or len({sample.work for sample in samples}) < MIN_WORKS:
        return before.scaled(float(np.exp(np.median(np.log(seconds / predicted)))))
    intensity = np.maximum(flops, 1.0) / np.maximum(moved, 1.0)
    low, high = float(intensity.min()), float(intensity.max())
    best = (np.inf, before)
    for _ in range(3):
        for balance in np.geomspace(low, high, _BALANCES):
            bound = np.maximum(flops, balance * moved)
            overhead, slope = _line(bound, seconds)
            loss = _loss(overhead + slope * bound, seconds)
            if loss < best[0] - 1e-12:
                rate = 1.0 / max(slope, 1e-18)
                best = (loss, Coefficients(overhead, rate, rate / float(balance)))
        found = best[1].flops / best[1].bytes
        width = (high / low) ** (1.0 / _BALANCES)
        low, high = max(low, found / width), min(high, found * width)
    return best[1]


def _line(x: Array, seconds: Array) -> tuple[float, float]:
    """Overhead and slope, neither negative, with ``overhead + slope * x`` near ``seconds``."""
    weight = 1.0 / seconds
    line = (0.0, 0.0)
    for _ in range(_STEPS):
        line = _nonnegative(x, seconds, weight)
        error = np.abs(line[0] + line[1] * x - seconds) / seconds
        weight = 1.0 / seconds / np.sqrt(np.maximum(error, 1e-3))
    return line


def _nonnegative(x: Array, y: Array, weight: Array) -> tuple[float, float]:
    """Weighted least squares of two coefficients that are at least zero."""
    w = weight * weight
    s, sx, sy = w.sum(), (w * x).sum(), (w * y).sum()
    sxx, sxy = (w * x * x).sum(), (w * x * y).sum()
    spread = s * sxx - sx * sx
    if spread > 1e-12 * s * sxx:
        overhead, slope = (sxx * sy - sx * sxy) / spread, (s * sxy - sx * sy) / spread
        if overhead >= 0 and slope >= 0:
            return float(overhead), float(slope)
    # On the border: one of the two alone, whichever leaves the smaller error.
    alone = [(float(sy / s), 0.0), (0.0, float(sxy / sxx) if sxx else 0.0)]
    return min(alone, key=lambda line: float((w * (line[0] + line[1] * x - y) ** 2).sum()))


def _loss(predicted: Array, seconds: Array) -> float:
    return float(np.abs(np.log2(np.maximum(predicted, SHORTEST) / seconds)).mean())


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """The rank correlation of two lists; None for fewer than two different values in either."""
    if len(set(left)) < 2 or len(set(right)) < 2:
        return None
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def _ranks(values: Sequence[float]) -> Array:
    """Ranks from 0; equal values share the mean of theirs."""
    array = np.asarray(values)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: Array = ends - (counts + 1) / 2.0
    return means[inverse]


__all__ = ["SHORTEST", "Sample", "fit", "fit_coefficients", "fit_kernels", "spearman"]
