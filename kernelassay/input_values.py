"""Transforms of drawn inputs into targeted values, and the domains they must stay in.

Only operations that every IEEE machine rounds alike are used (no ``randn``, ``exp`` or ``pow``,
whose vectorised versions differ between CPUs), so an input is the same bytes everywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelassay.errors import unknown_name

_SEED_STEP = 1_000_003


@dataclass(frozen=True, slots=True)
class Source:
    """What a transform may use besides its tensor."""

    generator: torch.Generator
    first: torch.Tensor | None = None

    def uniform(self, like: torch.Tensor) -> torch.Tensor:
        """Uniform in [0, 1), float32, of the shape of ``like``."""
        return torch.rand(like.shape, generator=self.generator, dtype=torch.float32)

    def mixed(self, like: torch.Tensor) -> torch.Tensor:
        """Dense values of both signs, mean 0, variance 1, within 4.3.

        The sum of six uniforms has variance 6/12 (Irwin-Hall), hence the factor sqrt(2).
        """
        total = self.uniform(like)
        for _ in range(5):
            total = total + self.uniform(like)
        return (total - 3.0) * 1.4142135

    def integers(self, low: int, high: int, like: torch.Tensor) -> torch.Tensor:
        """Integers in [low, high), of the shape of ``like``."""
        return torch.randint(low, high, like.shape, generator=self.generator)


@dataclass(frozen=True, slots=True)
class Transform:
    """A named change of one float32 tensor of rank 1 or more; the shape stays.

    A ``plain`` one is a checker's own: it is applied to every floating-point tensor as it is, in
    its dtype and on its device, whatever structure its values show.
    """

    name: str
    what: str
    apply: Callable[[torch.Tensor, Source], torch.Tensor]
    plain: bool = False


def _scaled(factor: float) -> Callable[[torch.Tensor, Source], torch.Tensor]:
    return lambda x, source: x * factor


def _huge(x: torch.Tensor, source: Source) -> torch.Tensor:
    return x * 3e5 + x.sign() * 1e5


def _offset(shift: float) -> Callable[[torch.Tensor, Source], torch.Tensor]:
    return lambda x, source: x + shift


def _mixed_scaled(factor: float) -> Callable[[torch.Tensor, Source], torch.Tensor]:
    return lambda x, source: source.mixed(x) * factor


def _opposed(x: torch.Tensor, source: Source) -> torch.Tensor:
    if source.first is not None and source.first.shape == x.shape:
        return -source.first
    values = source.mixed(x)
    lines = values if x.shape[-1] > 1 else values.reshape(1, -1)
    half = lines.shape[-1] // 2
    lines[..., half : 2 * half] = -lines[..., :half]
    return lines.reshape(x.shape)


def _constant_rows(x: torch.Tensor, source: Source) -> torch.Tensor:
    return source.mixed(x[..., :1]).expand(x.shape).clone()


def _zero_rows(x: torch.Tensor, source: Source) -> torch.Tensor:
    rows = _constant_rows(x, source).reshape(-1, x.shape[-1])
    rows[1::3] = 0.0
    return rows.reshape(x.shape)


def _small_spread(x: torch.Tensor, source: Source) -> torch.Tensor:
    """Variance 1e-5, comparable to the epsilon of a normalisation.

    A second tensor of the same shape lies 0.9 to 1 away, on the quadratic side of a Huber loss: at
    larger distances its linear side hides all else, at smaller ones the loss is lost in tolerance.
    """
    if source.first is not None and source.first.shape == x.shape:
        sign = source.integers(0, 2, x) * 2.0 - 1.0
        return source.first + sign * (0.9 + 0.1 * source.uniform(x))
    return 1.0 + source.mixed(x) * 0.003


def _edge_spikes(height: float) -> Callable[[torch.Tensor, Source], torch.Tensor]:
    """Spikes of ``height`` to twice that, of either sign, on the ends of the axes.

    A short leading axis (a batch of two) gets none: all of it would be ends.
    """

    def apply(x: torch.Tensor, source: Source) -> torch.Tensor:
        sign = source.integers(0, 2, x) * 2.0 - 1.0
        spikes = sign * (1.0 + source.uniform(x)) * height
        ends = torch.zeros(x.shape, dtype=torch.bool)
        for dim, extent in enumerate(x.shape):
            if extent > 4 or dim == x.dim() - 1:
                ends.select(dim, 0).fill_(True)
                ends.select(dim, extent - 1).fill_(True)
        return torch.where(ends, spikes, source.mixed(x) * 0.125)

    return apply


# Where piecewise functions change: relu, the clamps of hardtanh (1), hardswish (3), relu6 (6),
# softshrink (0.5), the linear part of softplus (20), the knee of the Huber loss (1).
_KNEES = (0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, -6.0, 20.0, -20.0)
_BESIDE = (0.0, 1e-3, -1e-3, 0.1, -0.1)


def _thresholds(x: torch.Tensor, source: Source) -> torch.Tensor:
    values = torch.tensor([knee + off for off in _BESIDE for knee in _KNEES])
    index = torch.arange(x.numel())
    # A second tensor stays on one value while the first runs through all of them.
    turn = index if source.first is None else index // len(values)
    return values[turn % len(values)].reshape(x.shape)


def _saturating(x: torch.Tensor, source: Source) -> torch.Tensor:
    # exp overflows float32 above 88.7 and is zero below -104: one third has no value above -120, so
    # that a maximum that starts from zero shows; one is positive, one of both signs.
    third = (torch.arange(x.numel()) * 3 // x.numel()).reshape(x.shape)
    either = source.integers(0, 2, x) * 2.0 - 1.0
    sign = torch.where(third == 2, either, third * 2.0 - 1.0)
    return sign * (20.0 + 70.0 * source.uniform(x)) - (third == 0) * 100.0


def _ramp(x: torch.Tensor, source: Source) -> torch.Tensor:
    # Multiples of a power of two in [-4, 4): distinct for up to 2**24 elements.
    count = min(x.numel(), 1 << 24)
    step = 8.0 / (1 << max(1, (count - 1).bit_length()))
    values = (torch.arange(x.numel()) % count).to(torch.float64) * step - 4.0
    return values.to(torch.float32).reshape(x.shape)


def _wide(x: torch.Tensor, source: Source) -> torch.Tensor:
    powers = torch.tensor([2.0**k for k in range(-20, 21)])
    sign = source.integers(0, 2, x) * 2.0 - 1.0
    return sign * (1.0 + source.uniform(x)) * powers[source.integers(0, len(powers), x)]


def _descending(x: torch.Tensor, source: Source) -> torch.Tensor:
    return source.mixed(x).sort(dim=-1, descending=True, stable=True).values


def _ties(x: torch.Tensor, source: Source) -> torch.Tensor:
    """Five values; most rows also have their two largest and two smallest at random places.

    So the first of the largest lies early in some lines and late in others.
    """
    values = source.integers(-2, 3, x) * 0.5
    for extreme in (1.5, 1.5, -1.5, -1.5):
        place = source.integers(0, x.shape[-1], x[..., :1])
        values.scatter_(-1, place, extreme)
    return values


def _tail_reversed(x: torch.Tensor, source: Source) -> torch.Tensor:
    """The ends, the first half, and what no order changes, as sums and extremes, stay."""
    made = x.flatten().clone()
    half = made.numel() // 2
    made[half:-1] = made[half:-1].flip(0)
    return made.reshape(x.shape)


def _whole_numbers(x: torch.Tensor, source: Source) -> torch.Tensor:
    return source.integers(-4, 5, x).to(torch.float32)


_DECADES = 6
_STEPS = 4096
# Computed once in double precision and rounded: tensors' own powers differ between CPUs.
_MAGNITUDES = [10.0 ** (_DECADES * (step / _STEPS - 0.5)) for step in range(_STEPS)]
_STEP = 10.0 ** (_DECADES / _STEPS) - 1.0


def _log_uniform(x: torch.Tensor, source: Source) -> torch.Tensor:
    """Either sign, magnitudes from 1e-3 to 1e3, each octave as likely; never zero."""
    magnitudes = torch.tensor(_MAGNITUDES, dtype=torch.float32)
    chosen = magnitudes[source.integers(0, _STEPS, x)] * (1.0 + _STEP * source.uniform(x))
    sign = source.integers(0, 2, x) * 2.0 - 1.0
    return (sign * chosen).to(x.dtype)


def _uniform(bound: float) -> Callable[[torch.Tensor, Source], torch.Tensor]:
    return lambda x, source: ((2.0 * source.uniform(x) - 1.0) * bound).to(x.dtype)


_ALL = (
    Transform("official", "the values the problem draws", lambda x, source: x),
    Transform("sign-mixed", "dense values of both signs", lambda x, source: source.mixed(x)),
    Transform("same-sign", "dense values without signs", lambda x, source: source.mixed(x).abs()),
    Transform("large-1e2", "the drawn values times 100", _scaled(1e2)),
    Transform("large-1e4", "the drawn values times 10,000", _scaled(1e4)),
    Transform("huge-3e5", "the drawn values, each past the range of fp16", _huge),
    Transform("near-zero-1e-3", "the drawn values times 1e-3", _scaled(1e-3)),
    Transform("offset-1e3", "the drawn values plus 1000", _offset(1e3)),
    Transform("offset-30", "the drawn values plus 30", _offset(30.0)),
    Transform("sign-mixed-300", "both signs, scaled by 300", _mixed_scaled(300.0)),
    Transform("sign-mixed-30", "both signs, scaled by 30", _mixed_scaled(30.0)),
    Transform("sign-mixed-5", "both signs, scaled by 5", _mixed_scaled(5.0)),
    Transform("small-spread", "one plus 0.003 times noise; a second tensor near", _small_spread),
    Transform("edge-spikes-100", "large at the ends of every axis", _edge_spikes(100.0)),
    Transform("edge-spikes-10", "tens at the ends of every axis", _edge_spikes(10.0)),
    Transform("thresholds", "where piecewise functions change, and beside it", _thresholds),
    Transform("saturating", "magnitudes from 20 to 190, where exp saturates", _saturating),
    Transform("opposed", "sums that cancel: a second tensor or half of the other sign", _opposed),
    Transform("constant-rows", "one value per row of the last dimension", _constant_rows),
    Transform("zero-rows", "one value per row, zero in every third row", _zero_rows),
    Transform("ramp", "a value of its own at every position", _ramp),
    Transform("all-negative", "no value above zero", lambda x, s: -s.mixed(x).abs() - 2.0**-10),
    Transform("wide", "magnitudes from 2^-20 to 2^21, evenly by exponent", _wide),
    Transform("sorted-descending", "both signs, rows in falling order", _descending),
    Transform("ties", "few distinct values, extremes more than once", _ties),
    Transform("tail-reversed", "the drawn values, the second half in reverse", _tail_reversed),
    Transform("ones", "one everywhere", lambda x, source: torch.ones_like(x)),
    Transform("whole-numbers", "small whole numbers of both signs", _whole_numbers),
    Transform("uniform-9", "uniform in [-9, 9)", _uniform(9.0)),
    Transform("uniform-10", "every float tensor uniform in [-10, 10)", _uniform(10.0), plain=True),
    Transform("log-uniform", "every float tensor over six decades", _log_uniform, plain=True),
    Transform("verified-x3", "every float tensor times 3", _scaled(3.0), plain=True),
    Transform("verified-x0.01", "every float tensor times 0.01", _scaled(0.01), plain=True),
    Transform("verified-x-1", "every float tensor times -1", _scaled(-1.0), plain=True),
)
TRANSFORMS: dict[str, Transform] = {transform.name: transform for transform in _ALL}

_AFFINE = re.compile(r"(?P<base>[^:]+)(?::x(?P<factor>[^:]+))?(?::\+(?P<shift>[^:]+))?")
MOSAIC = "~"
"""Between the names of the parts of a mosaic."""


def named_transform(name: str) -> Transform:
    """An entry of :data:`TRANSFORMS`, or ``<entry>:x<factor>:+<shift>``: its values, scaled, moved.

    Either part may be left out. Several such names with :data:`MOSAIC` between them: a mosaic of
    their values. Raises :class:`UsageError` for a name that is none.
    """
    found = parsed_transform(name)
    if found is None:
        raise unknown_name("transform", name, TRANSFORMS)
    return found


def parsed_transform(name: str) -> Transform | None:
    """As :func:`named_transform`, but None for a name that is none."""
    if MOSAIC not in name:
        return TRANSFORMS.get(name) or _affine(name)
    parts = [parsed_transform(part) for part in name.split(MOSAIC)]
    known = [part for part in parts if part is not None]
    return _mosaic(name, known) if len(known) == len(parts) else None


def entries_of(name: str) -> tuple[str, ...]:
    """The names of the entries of :data:`TRANSFORMS` that a transform is made of."""
    return tuple(dict.fromkeys(part.partition(":")[0] for part in name.split(MOSAIC)))


def _affine(name: str) -> Transform | None:
    match = _AFFINE.fullmatch(name)
    base = TRANSFORMS.get(match["base"]) if match else None
    if match is None or base is None:
        return None
    try:
        factor, shift = float(match["factor"] or 1.0), float(match["shift"] or 0.0)
    except ValueError:
        return None
    if not (math.isfinite(factor) and math.isfinite(shift)):
        return None
    made = base.apply

    def apply(x: torch.Tensor, source: Source) -> torch.Tensor:
        return made(x, source) * factor + shift

    return Transform(name, f"{base.what}, times {factor:g}, plus {shift:g}", apply, base.plain)


def _mosaic(name: str, parts: Sequence[Transform]) -> Transform:
    """The first tensor's slices take turns in the parts' values; other tensors have the first's.

    Slices are those of the first axis that has several, the last axis apart. What is computed of
    one slice alone is thus tried on all parts at once.
    """

    def apply(x: torch.Tensor, source: Source) -> torch.Tensor:
        axis = next((d for d, extent in enumerate(x.shape[:-1]) if extent > 1), None)
        if axis is None or source.first is not None:
            return parts[0].apply(x, source)
        turns = min(len(parts), x.shape[axis])
        made = x.clone()
        for turn, part in enumerate(parts[:turns]):
            slices = torch.arange(turn, x.shape[axis], turns)
            made.index_copy_(axis, slices, part.apply(x.index_select(axis, slices), source))
        return made

    what = "by slice: " + "; ".join(part.what for part in parts)
    return Transform(name, what, apply)


def generator_for(seed: int, index: int) -> torch.Generator:
    """The stream for one tensor of an input: independent of the problem's own draws."""
    return torch.Generator().manual_seed((seed + _SEED_STEP * (index + 1)) % (1 << 63))


def transformed(drawn: Sequence[Any], transform: Transform, seed: int) -> list[Any]:
    """The drawn inputs with ``transform`` applied to every float tensor, within its domain.

    Integers, booleans, scalars, empty tensors and labels stay as drawn. A plain transform knows no
    domain and no labels: integers, booleans and scalars alone stay.
    """
    if transform.name == "official":
        return list(drawn)
    if transform.plain:
        return [
            transform.apply(value, Source(generator_for(seed, index)))
            if isinstance(value, torch.Tensor) and value.is_floating_point()
            else value
            for index, value in enumerate(drawn)
        ]
    result: list[Any] = []
    first: torch.Tensor | None = None
    for index, value in enumerate(drawn):
        if not isinstance(value, torch.Tensor) or not _may_change(value):
            result.append(value)
            continue
        source = Source(generator_for(seed, index), first)
        flat = value.detach().to(torch.float32)
        flat = flat.reshape(1) if flat.dim() == 0 else flat.contiguous()
        new = _into_domain(flat, transform.apply(flat, source)).reshape(value.shape)
        first = new if first is None else first
        result.append(new.to(value.dtype))
    return result


# ---- domains -----------------------------------------------------------------------------------


def _may_change(x: torch.Tensor) -> bool:
    return x.is_floating_point() and x.numel() > 0 and not _is_labels(x)


def _is_labels(x: torch.Tensor) -> bool:
    """Whether a float tensor holds a few whole numbers: class labels, or a 0/1 mask."""
    if x.numel() < 2 or not bool((x == x.round()).all()):
        return False
    return x.unique().numel() <= 16


def _into_domain(drawn: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """``new`` forced into the structure that ``drawn`` shows."""
    dim = _distribution_dim(drawn)
    if dim is not None:
        return _as_distribution(new, dim)
    if drawn.dim() >= 2 and drawn.shape[-1] == drawn.shape[-2] > 1:
        if not bool(drawn.tril(-1).any()):
            return new.triu()
        if not bool(drawn.triu(1).any()):
            return new.tril()
        if torch.equal(drawn, drawn.transpose(-1, -2)):
            return new.triu() + new.triu(1).transpose(-1, -2)
    return new


def _distribution_dim(x: torch.Tensor) -> int | None:
    """The dimension along which a non-negative tensor sums to one everywhere, if any."""
    if bool((x < 0).any()) or not bool(torch.isfinite(x).all()):
        return None
    for dim in dict.fromkeys((x.dim() - 1, min(1, x.dim() - 1))):
        sums = x.sum(dim=dim, dtype=torch.float64)
        if x.shape[dim] > 1 and bool(((sums - 1).abs() < 1e-3).all()):
            return dim
    return None


def _as_distribution(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Positive values that sum to one and keep the order of ``x``.

    Whole-number weights make the sums exact, hence the same on every machine.
    """
    above = (x - x.amin(dim=dim, keepdim=True)).clamp(0.0, 4096.0)
    weights = 1 + (above.to(torch.float64) * 65536.0).floor().to(torch.int64)
    total = weights.sum(dim=dim, keepdim=True)
    return (weights.to(torch.float64) / total.to(torch.float64)).to(torch.float32)
