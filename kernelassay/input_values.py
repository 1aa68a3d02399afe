"""Transforms of drawn inputs into targeted values, and the domains they must stay in.

Only operations that every IEEE machine rounds alike are used (no ``randn``, ``exp`` or ``pow``,
whose vectorised versions differ between CPUs), so an input is the same bytes everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

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
    """A named change of one float32 tensor of rank 1 or more; the shape stays."""

    name: str
    what: str
    apply: Callable[[torch.Tensor, Source], torch.Tensor]


def _scaled(factor: float) -> Callable[[torch.Tensor, Source], torch.Tensor]:
    return lambda x, source: x * factor


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


def _one_hot(x: torch.Tensor, source: Source) -> torch.Tensor:
    place = source.integers(0, x.shape[-1], x[..., :1])
    return torch.zeros_like(x).scatter(-1, place, 1.0)


def _spike(x: torch.Tensor, source: Source) -> torch.Tensor:
    values = x.flatten().clone()
    place = int(torch.randint(0, values.numel(), (1,), generator=source.generator))
    values[place] = 1000.0
    return values.reshape(x.shape)


def _ramp(x: torch.Tensor, source: Source) -> torch.Tensor:
    # Multiples of a power of two in [-4, 4): distinct for up to 2**24 elements.
    count = min(x.numel(), 1 << 24)
    step = 8.0 / (1 << max(1, (count - 1).bit_length()))
    values = (torch.arange(x.numel()) % count).to(torch.float64) * step - 4.0
    return values.to(torch.float32).reshape(x.shape)


def _permuted(x: torch.Tensor, source: Source) -> torch.Tensor:
    order = torch.randperm(x.numel(), generator=source.generator)
    return x.flatten()[order].reshape(x.shape)


def _wide(x: torch.Tensor, source: Source) -> torch.Tensor:
    powers = torch.tensor([2.0**k for k in range(-20, 21)])
    sign = source.integers(0, 2, x) * 2.0 - 1.0
    return sign * (1.0 + source.uniform(x)) * powers[source.integers(0, len(powers), x)]


def _descending(x: torch.Tensor, source: Source) -> torch.Tensor:
    return source.mixed(x).sort(dim=-1, descending=True, stable=True).values


def _ties(x: torch.Tensor, source: Source) -> torch.Tensor:
    return source.integers(-2, 3, x) * 0.5


_ALL = (
    Transform("official", "the values the problem draws", lambda x, source: x),
    Transform("sign-mixed", "dense values of both signs", lambda x, source: source.mixed(x)),
    Transform("negated", "the drawn values times -1", _scaled(-1.0)),
    Transform("large-1e2", "the drawn values times 100", _scaled(1e2)),
    Transform("large-1e4", "the drawn values times 10,000", _scaled(1e4)),
    Transform("huge-3e5", "the drawn values past the range of fp16", _scaled(3e5)),
    Transform("near-zero-1e-3", "the drawn values times 1e-3", _scaled(1e-3)),
    Transform("near-zero-1e-6", "the drawn values times 1e-6", _scaled(1e-6)),
    Transform("large-sign-mixed", "both signs, scaled by 30", lambda x, s: s.mixed(x) * 30.0),
    Transform("opposed", "sums that cancel: a second tensor or half of the other sign", _opposed),
    Transform("constant-rows", "one value per row of the last dimension", _constant_rows),
    Transform("one-hot", "a single one per row of the last dimension", _one_hot),
    Transform("spike", "one drawn value replaced by 1000", _spike),
    Transform("ramp", "a value of its own at every position", _ramp),
    Transform("permuted", "the drawn values in another order", _permuted),
    Transform("all-negative", "no value above zero", lambda x, s: -s.mixed(x).abs() - 2.0**-10),
    Transform("wide", "magnitudes from 2^-20 to 2^21, evenly by exponent", _wide),
    Transform("sorted-descending", "both signs, rows in falling order", _descending),
    Transform("ties", "five distinct values", _ties),
)
TRANSFORMS: dict[str, Transform] = {transform.name: transform for transform in _ALL}


def generator_for(seed: int, index: int) -> torch.Generator:
    """The stream for one tensor of an input: independent of the problem's own draws."""
    return torch.Generator().manual_seed((seed + _SEED_STEP * (index + 1)) % (1 << 63))


def transformed(drawn: Sequence[Any], transform: Transform, seed: int) -> list[Any]:
    """The drawn inputs with ``transform`` applied to every float tensor, within its domain.

    Integers, booleans, scalars, empty tensors and labels stay as drawn.
    """
    if transform.name == "official":
        return list(drawn)
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
