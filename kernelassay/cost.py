"""Seconds predicted from FLOP and bytes, to order and size units of work before they run.

A kernel takes ``overhead + max(flops / F, bytes / B)``: it computes or it waits for memory. The
three coefficients belong to an executor, a template and a style, and are fitted on the timings of
sessions. Preparing an input, and running a candidate with all that follows (values downstream,
grading), have the same form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kernelassay.problem import Problem
from kernelassay.timing import UnitWork, Work

ANY = "*"
PREPARE = "prepare"
ORIGINAL = "original"
CANDIDATE = "candidate"
"""Kinds beside kernels: an input's preparation, and an original, or one run of a candidate, with
all that follows its kernel: grading it, and computing anew what depends on it."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """``overhead`` in seconds, ``flops`` per second, ``bytes`` per second."""

    overhead: float
    flops: float
    bytes: float

    def seconds(self, work: Work) -> float:
        """The predicted seconds of some work; never less for more work."""
        return self.overhead + max(work.flops / self.flops, work.bytes / self.bytes)

    def scaled(self, factor: float) -> Coefficients:
        """Those of something ``factor`` times as slow."""
        return Coefficients(self.overhead * factor, self.flops / factor, self.bytes / factor)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted seconds of a unit: its parts are those of a ``Timing``."""

    prepare: float
    fixed: float
    candidates: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.prepare + self.fixed + sum(self.candidates.values())


@dataclass(frozen=True, slots=True)
class Machine:
    """The coefficients of an executor, by ``<template>/<style>`` or kind, and where they are from.

    A style that was not measured for a template has those of ``*/<style>``, else of ``*``. One run
    of a candidate is by ``candidate:<template>/<style>``, else ``candidate``: a fault may make a
    kernel slow, and what that costs depends on the kernel.
    """

    executor: str
    provenance: str
    table: Mapping[str, Coefficients]

    def of(self, template: str, style: str) -> Coefficients:
        """The coefficients of a kernel."""
        for key in (f"{template}/{style}", f"{ANY}/{style}", ANY):
            if key in self.table:
                return self.table[key]
        raise KeyError(f"{self.executor} has no entry {ANY!r}")

    def kernel(self, original: str, work: UnitWork) -> float:
        """The predicted seconds of one run of an original's kernel, by the original's id."""
        call, style = call_and_style(original)
        return self.of(work.calls[call].template, style).seconds(work.calls[call].kernel)

    def run(self, original: str, work: UnitWork, kind: str = CANDIDATE) -> float:
        """The predicted seconds of an original or of one run of a candidate, with what follows."""
        call, style = call_and_style(original)
        about = work.calls[call]
        own = self.table.get(f"{kind}:{about.template}/{style}", self.table[kind])
        return own.seconds(about.kernel + about.after)

    def unit(self, work: UnitWork, originals: Iterable[str], runs: Mapping[str, int]) -> Prediction:
        """The predicted seconds of a unit in which ``runs`` are made, by their originals' ids."""
        return Prediction(
            self.table[PREPARE].seconds(work.forward),
            sum(self.run(original, work, ORIGINAL) for original in originals),
            {original: count * self.run(original, work) for original, count in runs.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        table = {key: asdict(self.table[key]) for key in sorted(self.table)}
        return {"executor": self.executor, "provenance": self.provenance, "table": table}


def call_and_style(original: str) -> tuple[str, str]:
    """The call and the style in an original's id."""
    _, call, style = original.split("/")
    return call, style


def guess(problem: Problem) -> float:
    """How heavy a problem is, before it is planned: good for an order, in no unit.

    Chains of kernels (a higher level) take longest, and then what has larger sizes.
    """
    sizes = math.prod(max(1, lever.value) for lever in problem.sizes)
    return float(problem.level) + 1.0 - 1.0 / (1.0 + math.log2(1 + sizes))
