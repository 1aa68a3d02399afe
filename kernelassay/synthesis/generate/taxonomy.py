"""Inputs from what is known of faults in general: one wish per family, applied to one problem.

Blind to mutants: what it knows is the catalogue of families, the correct kernels' own text (tiles,
vector widths, grid-stride loops), which operations are computed, and how far values may go before
correct kernels fail (the ceiling).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernelassay.inputs import InputSpec
from kernelassay.synthesis.generate.geometry import edges, one_large, spread
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

Values = tuple[str, ...]

SPARE = 8
"""More wishes are settled than inputs asked for, since correct kernels may object to some."""
APART = 5000
"""Added to the seed, so that no values or parameters that are drawn are the battery's."""
OBJECTED = "correct kernels objected"

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
        """As :class:`Generator`; what correct kernels object to is passed over, and counted."""
        wishes = tuple(Playbook(target, APART + seed, self.name).wishes())
        chosen: dict[InputSpec, str] = {}
        refused = 0
        for made, why in run_task(settled, target.problem, wishes, count + SPARE):
            if len(chosen) == count:
                break
            if target.objection(made):
                refused += 1
            else:
                chosen[made] = why
        aims = {made.id: why for made, why in chosen.items()}
        return Proposal(tuple(chosen), {OBJECTED: refused} if refused else {}, aims)


class Playbook:
    """The wishes for one problem, those first that show most kinds of faults."""

    def __init__(self, target: Target, seed: int, rung: str) -> None:
        self.target = target
        self.seed = seed
        self.rung = rung
        self.levers = target.problem.sizes
        self.edges = edges(kernel.source for kernel in target.kernels)
        self.redrawn = f"redrawn:{1000 + seed}" if target.parameters else "official"
        self.mixed = tuple(f"sign-mixed:x{s:g}" for s in scales(target, SIGN_MIXED))
        self.same = tuple(f"same-sign:x{s:g}" for s in scales(target, SAME_SIGN))

    def wishes(self) -> Iterator[Wish]:
        """All wishes, in order."""
        mixed, same = (*self.mixed, "official"), (*self.same, "official")
        moderate = ("sign-mixed:x8", "sign-mixed:x2", "official")
        shifts = ("official:+1000", "official:+100", "official:+20", "official")
        spikes = ("edge-spikes-100", "edge-spikes-10", "official")
        at = self.edges
        yield Wish(
            self._at(at.past, 0, same, order="reverse", surroundings="packed"),
            "boundary: past every edge; precision: values past float16",
        )
        yield Wish(
            self._at(at.whole, 0, spikes, surroundings="nan"),
            "boundary: whole vectors, no whole tile",
        )
        if self.target.parameters:
            times = tuple(one for k in (3000, 300, 30) for one in self._times(k, moderate))
            yield Wish(times, "precision: large parameters; arithmetic: terms that cancel")
        else:
            yield Wish(self._own(mixed), "arithmetic: sums that cancel, below the ceiling")
        yield Wish(self._long(-1, moderate), "indexing: several blocks, loops that go round")
        yield from self._semantic()
        yield Wish(
            self._at(at.below, 1, shifts, order="reverse", surroundings="nan"),
            "boundary: below every edge; precision: offset values",
        )
        yield Wish(self._long(0, mixed, order="seeded:1"), "synchronization: many rows, any order")
        yield Wish(self._single(same), "boundary: single elements")
        yield Wish(
            self._at(at.twice, 0, mixed, order="seeded:1", surroundings="packed"),
            "indexing: a second turn of every tile",
        )
        if self.target.parameters:
            yield Wish(self._own(mixed), "arithmetic: sums that cancel, below the ceiling")
        yield Wish(self._own(shifts), "precision: offset values")
        yield Wish(self._own(("small-spread", "official")), "arithmetic: values that nearly agree")
        yield Wish(self._own(("opposed", "official"), order="reverse"), "arithmetic: halves cancel")
        ladder = at.ladder
        for turn in range(len(ladder)):
            order = ("reverse", "forward", "seeded:1")[turn % 3]
            around = ("packed", "nan")[turn % 2]
            values = mixed if turn % 2 else spikes
            made = self._at(ladder, turn, values, 3, order=order, surroundings=around)
            yield Wish(made, "boundary: further edges")
        for place in range(1, len(self.levers) - 1):
            yield Wish(self._long(place, mixed), "indexing: each size large in its turn")

    def grounds(self) -> Iterator[InputSpec]:
        """Sizes and conditions for inputs of any values."""
        at, values = self.edges, ("official",)
        yield from self._at(at.whole, 0, values, order="reverse", surroundings="packed")
        yield from self._at(at.past, 0, values, order="reverse", surroundings="nan")
        yield from self._long(-1, values, order="seeded:1")
        yield from self._at(at.twice, 1, values, order="seeded:1", surroundings="packed")
        yield from self._at(at.below, 1, values, order="reverse", surroundings="nan")
        yield from self._long(0, values, order="reverse")
        yield from self._at(at.whole, 1, values, surroundings="nan")
        yield from self._at(at.past, 2, values, surroundings="packed")
        yield from self._own(values)

    def kinds(self) -> Iterator[Values]:
        """The kinds of values, those first that show most, each from its largest scale down."""
        yield ("sign-mixed:x2", "sign-mixed", "official")
        yield self.same
        yield ("edge-spikes-100", "edge-spikes-10")
        yield self.mixed
        yield ("official:+1000", "official:+100", "official:+20")
        words = self.target.words
        if words & _EXP:
            yield ("saturating", "sign-mixed:x8")
        if words & _ORDER:
            yield ("ties",)
            yield ("all-negative",)
        if words & _KNEES:
            yield ("thresholds",)
        yield ("small-spread",)
        yield ("opposed",)
        yield ("near-zero-1e-3",)

    def _semantic(self) -> Iterator[Wish]:
        """What the operations themselves are sensitive to."""
        words = self.target.words
        if words & _EXP:
            values = ("saturating", "sign-mixed:x8", "official")
            yield Wish(self._own(values), "semantic: saturation")
        if words & _KNEES:
            yield Wish(self._own(("thresholds", "official")), "semantic: where pieces meet")
        if words & _ORDER:
            yield Wish(self._own(("ties", "official")), "semantic: ties, order")
            yield Wish(self._own(("all-negative", "official")), "semantic: nothing above zero")

    def _specs(
        self, values: Values, sizes: Mapping[str, int] | None, conditions: Mapping[str, Any]
    ) -> tuple[InputSpec, ...]:
        fields = {"parameters": self.redrawn, **conditions}
        return tuple(spec(self.rung, self.seed, name, sizes, **fields) for name in values)

    def _own(self, values: Values, **conditions: Any) -> tuple[InputSpec, ...]:
        """At the problem's own sizes."""
        return self._specs(values, None, conditions)

    def _at(
        self, ladder: Sequence[int], turn: int, values: Values, stride: int = 1, **conditions: Any
    ) -> tuple[InputSpec, ...]:
        """At sizes next to edges."""
        return self._specs(values, spread(self.levers, ladder, turn, stride), conditions)

    def _long(self, place: int, values: Values, **conditions: Any) -> tuple[InputSpec, ...]:
        """One size so large that blocks go round, or several stand side by side."""
        sizes = one_large(self.levers, self.edges.long[0], place % max(1, len(self.levers)))
        return self._specs(values, sizes, conditions)

    def _single(self, values: Values, **conditions: Any) -> tuple[InputSpec, ...]:
        """At sizes of one, where a problem accepts them."""
        return self._specs(values, {lever.name: 1 for lever in self.levers}, conditions)

    def _times(self, factor: int, values: Values) -> tuple[InputSpec, ...]:
        """With parameters times a factor, in a fresh draw."""
        parameters = f"redrawn:{2000 + self.seed}:x{factor}"
        return self._specs(values, None, {"parameters": parameters})
