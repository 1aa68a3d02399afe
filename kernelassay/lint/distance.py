"""How far two tensors lie apart, measured in float64 on the device that holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

_CHUNK = 1 << 22  # elements taken to float64 at a time


@dataclass(frozen=True, slots=True)
class Distance:
    """``critical`` is the smallest t for which ``allclose(out, ref, atol=t, rtol=t)`` holds.

    It is infinite where no t helps: a NaN on either side, or infinities that differ. ``largest`` is
    the largest absolute difference, likewise infinite. ``past`` counts, for each tolerance asked
    for, the elements that break it.
    """

    critical: float
    largest: float
    past: tuple[int, ...]
    count: int


def distance(
    out: torch.Tensor,
    ref: torch.Tensor,
    tolerances: Sequence[float] = (),
    *,
    equal_nan: bool = False,
) -> Distance:
    """Compare tensors of equal shape (real dtypes); ``equal_nan`` lets two NaNs agree.

    Raises ``ValueError`` if shapes differ.
    """
    if out.shape != ref.shape:
        raise ValueError(f"shapes {tuple(out.shape)} and {tuple(ref.shape)} differ")
    critical = largest = 0.0
    past = [0] * len(tolerances)
    for a, b in _chunks(out, ref):
        finite = torch.isfinite(a) & torch.isfinite(b)
        agree = finite | (a == b)  # equal infinities agree
        if equal_nan:
            agree |= torch.isnan(a) & torch.isnan(b)
        odd = int((~agree).sum())
        difference = torch.where(finite, (a - b).abs(), 0.0)
        scaled = difference / (1.0 + torch.where(finite, b.abs(), 0.0))
        critical = max(critical, float("inf") if odd else float(scaled.max()))
        largest = max(largest, float("inf") if odd else float(difference.max()))
        for index, tolerance in enumerate(tolerances):
            past[index] += int((scaled > tolerance).sum()) + odd
    return Distance(critical, largest, tuple(past), ref.numel())


def value_range(values: torch.Tensor) -> tuple[float, float]:
    """The least and the largest finite element; ``(0, 0)`` when there is none."""
    finite = values[torch.isfinite(values)] if values.is_floating_point() else values
    if not finite.numel():
        return 0.0, 0.0
    least, most = torch.aminmax(finite.to(torch.float32) if finite.dtype == torch.bool else finite)
    return float(least), float(most)


def count_underflown(single: torch.Tensor, exact: torch.Tensor) -> int:
    """The elements that are zero or subnormal in ``single``'s format and not zero in ``exact``."""
    least_normal = torch.finfo(single.dtype).tiny
    return sum(
        int(((a.abs() < least_normal) & (b != 0) & torch.isfinite(b)).sum())
        for a, b in _chunks(single, exact)
    )


def _chunks(
    first: torch.Tensor, second: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if not first.numel():
        return
    pair = (first.detach().reshape(-1).split(_CHUNK), second.detach().reshape(-1).split(_CHUNK))
    for a, b in zip(*pair, strict=True):
        yield a.to(torch.float64), b.to(torch.float64)
