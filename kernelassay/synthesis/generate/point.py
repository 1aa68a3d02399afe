"""One input as a point of a space to search: its values, sizes, parameters and conditions."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelassay.inputs import InputSpec
from kernelassay.problem import Lever
from kernelassay.synthesis.generate.target import spec

BASES = (
    "sign-mixed",
    "same-sign",
    "official",
    "edge-spikes-10",
    "thresholds",
    "saturating",
    "ties",
    "opposed",
    "small-spread",
    "zero-rows",
    "all-negative",
    "wide",
    "ramp",
)
FACTORS = (10.0, 0.1, 3.0, 1.0 / 3.0)
SHIFTS = (0.0, 20.0, 1000.0, -30.0)
ORDERS = ("forward", "reverse", "seeded:1", "seeded:2")
AROUND = ("finite", "packed", "nan")
TIMES = ("", ":x30", ":x300", ":x3000")
MOST, LEAST = 1e6, 1e-6


@dataclass(frozen=True, slots=True)
class Point:
    """See the module. ``times`` is what redrawn parameters are multiplied by, as a spec says it."""

    base: str = "sign-mixed"
    factor: float = 1.0
    shift: float = 0.0
    sizes: tuple[tuple[str, int], ...] = ()
    times: str | None = None
    order: str = "forward"
    surroundings: str = "finite"
    layout: str = "contiguous"

    @classmethod
    def of(cls, made: InputSpec) -> Point:
        """The point that stands for a generated input of some transform."""
        base, *rest = made.transform.split(":")
        factor = next((float(part[1:]) for part in rest if part[0] == "x"), 1.0)
        shift = next((float(part[1:]) for part in rest if part[0] == "+"), 0.0)
        times = None
        if made.parameters.startswith("redrawn:"):
            times = "".join(f":{part}" for part in made.parameters.split(":")[2:])
        return cls(
            base,
            factor,
            shift,
            made.overrides,
            times,
            made.order,
            made.surroundings,
            made.layout,
        )

    @classmethod
    def drawn(
        cls,
        draw: random.Random,
        levers: Sequence[Lever],
        ladder: Sequence[int],
        *,
        parameters: bool,
    ) -> Point:
        """A random one: where nothing tells which way is up."""
        sizes = {lever.name: draw.choice(ladder) for lever in levers if draw.random() < 0.8}
        return cls(
            draw.choice(BASES),
            draw.choice((1.0, 8.0, 100.0, 3e5)),
            draw.choice(SHIFTS),
            tuple(sorted(sizes.items())),
            draw.choice(TIMES) if parameters else None,
            draw.choice(ORDERS),
            draw.choice(AROUND),
        )

    def spec(self, rung: str, seed: int) -> InputSpec:
        """The input that it stands for."""
        shift = f":+{self.shift:g}" if self.shift else ""
        factor = f":x{self.factor:.4g}" if self.factor != 1.0 else ""
        redrawn = "official" if self.times is None else f"redrawn:{1000 + seed}{self.times}"
        return spec(
            rung,
            seed,
            f"{self.base}{factor}{shift}",
            dict(self.sizes),
            parameters=redrawn,
            order=self.order,
            surroundings=self.surroundings,
            layout=self.layout,
        )

    def beside(
        self, levers: Sequence[Lever], ladder: Sequence[int], *, parameters: bool
    ) -> Iterator[Point]:
        """The points that differ in one coordinate."""
        for factor in FACTORS:
            if LEAST <= self.factor * factor <= MOST:
                yield replace(self, factor=self.factor * factor)
        for base in BASES:
            yield replace(self, base=base)
        for shift in SHIFTS:
            yield replace(self, shift=shift)
        for lever in levers:
            for size in ladder[:10]:
                yield replace(self, sizes=_with(self.sizes, lever.name, size))
        if self.sizes:
            yield replace(self, sizes=())
        for times in TIMES if parameters else ():
            yield replace(self, times=times)
        for order in ORDERS:
            yield replace(self, order=order)
        for around in AROUND:
            yield replace(self, surroundings=around)
        yield replace(self, layout="strided")


def _with(sizes: tuple[tuple[str, int], ...], name: str, size: int) -> tuple[tuple[str, int], ...]:
    moved: Mapping[str, int] = {**dict(sizes), name: size}
    return tuple(sorted(moved.items()))
