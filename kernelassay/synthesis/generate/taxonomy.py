"""Inputs from what is known of faults in general: one wish per family, applied to one problem.

Blind to mutants: what it knows is the catalogue of families, the correct kernels' own text (tiles,
vector widths, grid-stride loops), which operations are computed, and how far values may go before
correct kernels fail (the ceiling).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from kernelassay.inputs import InputSpec
from kernelassay.substrate.lowering import MAX_BLOCKS
from kernelassay.synthesis.generate.geometry import extents, one_large, spread, tiles, wraps
from kernelassay.synthesis.generate.settling import settled
from kernelassay.synthesis.generate.target import (
    SAME_SIGN,
    SIGN_MIXED,
    Proposal,
    Target,
    WhiteBox,
    Wish,
    spec,
)
from kernelassay.tasks import run_task

BELOW = 0.4
"""How far below the ceiling values stay, as a factor: the gate leaves half of the tolerance."""
MOST = 3e5
"""No scale is larger: past the range of float16, which ends at 65,504, nothing is gained."""

_EXP_NAMES = """
    softmax exp sigmoid tanh gelu silu swish softplus logsumexp elu selu mish erf log attention
    lstm gru rnn cross entropy
"""
_KNEE_NAMES = """
    relu relu6 clamp hardtanh leaky elu hardswish hardsigmoid huber smooth threshold abs sign
    where softshrink hardshrink gelu softplus celu selu pointwise
"""
_ORDER_NAMES = "max min amax amin argmax argmin sort topk pool cummax cummin argreduce"
_EXP, _KNEES, _ORDER = (
    frozenset(names.split()) for names in (_EXP_NAMES, _KNEE_NAMES, _ORDER_NAMES)
)


def scales(target: Target, kind: str) -> tuple[float, ...]:
    """Scales to try for a kind of values, falling: first the largest below its ceiling."""
    ceiling = target.ceilings.get(kind)
    top = 1.0 if ceiling is None else min(MOST, max(1.0, BELOW * ceiling))
    steps = [top, top / 4, top / 30, math.sqrt(top), 1.0]
    return tuple(dict.fromkeys(float(f"{s:.3g}") for s in steps if s >= 1.0))


class Taxonomy:
    """See the module."""

    name = "taxonomy"
    blind = True

    def propose(
        self, target: Target, count: int, seed: int, seen: WhiteBox | None = None
    ) -> Proposal:
        """As :class:`Generator`."""
        wishes = tuple(_Playbook(target, seed, self.name).wishes())
        return Proposal(run_task(settled, target.problem, wishes, count))


class _Playbook:
    """The wishes for one problem, those first that show most kinds of faults."""

    def __init__(self, target: Target, seed: int, rung: str) -> None:
        self.target = target
        self.seed = seed
        self.rung = rung
        self.levers = target.problem.sizes
        sources = [kernel.source for kernel in target.kernels]
        self.ladder = extents(sources)
        self.largest = max((n for text in sources for n in tiles(text)), default=32)
        self.turns = any(map(wraps, sources))
        self.redrawn = f"redrawn:{1000 + seed}" if target.parameters else "official"

    def wishes(self) -> Iterator[Wish]:
        """All wishes, in order."""
        mixed = [f"sign-mixed:x{s:g}" for s in scales(self.target, SIGN_MIXED)]
        same = [f"same-sign:x{s:g}" for s in scales(self.target, SAME_SIGN)]
        moderate = [f"sign-mixed:x{s:g}" for s in (8.0, 2.0)]
        words = self.target.words
        past = self._at(0, *same, "official", order="reverse", surroundings="packed")
        yield Wish(past, "past every edge, values past float16")
        yield Wish(self._own(*mixed, "official"), "cancelling sums below the ceiling")
        beside = self._at(1, *moderate, "official", surroundings="nan")
        yield Wish(beside, "below every edge, dense values of both signs")
        if words & _EXP:
            yield Wish(self._own("saturating", "sign-mixed:x8", "official"), "saturation")
        if words & _KNEES:
            yield Wish(self._own("thresholds", "official"), "where piecewise functions change")
        if words & _ORDER:
            yield Wish(self._own("ties", "all-negative", "official"), "ties and order")
        yield Wish(self._long(*moderate, "official"), "several blocks, and loops that go round")
        shifts = ("official:x1:+1000", "official:x1:+100", "official:x1:+20")
        yield Wish(self._at(2, *shifts, order="reverse"), "offset values")
        yield Wish(self._single(*same, "official"), "single elements")
        spikes = ("edge-spikes-100", "edge-spikes-10", "official")
        yield Wish(self._at(3, *spikes, surroundings="packed"), "the ends of every axis")
        if self.target.parameters:
            yield Wish(tuple(self._factors(*moderate, "official")), "large parameters")
        yield Wish(self._own("small-spread", "official"), "values that nearly agree")
        yield Wish(self._own("opposed", "official", order="seeded:1"), "terms that cancel")
        for turn in range(4, 4 + len(self.ladder)):
            order = ("reverse", "forward", "seeded:1")[turn % 3]
            around = ("packed", "nan")[turn % 2]
            values = (*mixed, "official") if turn % 2 else (*same, "official")
            made = self._at(turn, *values, order=order, surroundings=around)
            yield Wish(made, "past further edges")

    def _specs(
        self,
        values: tuple[str, ...],
        sizes: Mapping[str, int] | None,
        conditions: Mapping[str, Any],
    ) -> tuple[InputSpec, ...]:
        fields = {"parameters": self.redrawn, **conditions}
        return tuple(spec(self.rung, self.seed, name, sizes, **fields) for name in values)

    def _own(self, *values: str, **conditions: Any) -> tuple[InputSpec, ...]:
        """At the problem's own sizes."""
        return self._specs(values, None, conditions)

    def _at(self, turn: int, *values: str, **conditions: Any) -> tuple[InputSpec, ...]:
        """At sizes next to edges."""
        return self._specs(values, spread(self.levers, self.ladder, turn), conditions)

    def _long(self, *values: str, **conditions: Any) -> tuple[InputSpec, ...]:
        """One size, the last, so large that blocks go round, or several stand side by side."""
        large = (MAX_BLOCKS + 1 if self.turns else 1) * self.largest + 1
        place = len(self.levers) - 1
        return self._specs(values, one_large(self.levers, large, place), conditions)

    def _single(self, *values: str, **conditions: Any) -> tuple[InputSpec, ...]:
        """At sizes of one, where a problem accepts them."""
        return self._specs(values, {lever.name: 1 for lever in self.levers}, conditions)

    def _factors(self, *values: str) -> Iterator[InputSpec]:
        """With parameters times a factor, in a fresh draw."""
        for factor in (3000, 300, 30):
            fields = {"parameters": f"redrawn:{2000 + self.seed}:x{factor}"}
            yield from self._specs(values, None, fields)
