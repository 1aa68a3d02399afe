"""How the elements of a case's inputs are distributed: the published ways, and ours.

Each draws ``count`` elements for one input, in float64, already within the range of the dtype
that they are cast to. ``position`` is the input's place among the operator's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelassay.errors import unknown_name
from kernelassay.illusion.rng import derive, picks, uniforms

Shape = tuple[int, ...]
Array = NDArray[np.float64]
Draw = Callable[[int, Shape, np.dtype, int], Array]
"""Seed, shape, dtype to be cast to, position of the input -> elements."""

_SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0])
_NONFINITE = _SPECIAL[:3]


@dataclass(frozen=True, slots=True)
class Values:
    """One distribution; ``finite`` tells whether all that it draws is."""

    name: str
    what: str
    draw: Draw
    finite: bool = True


def _between(seed: int, shape: Shape, low: float, high: float) -> Array:
    return low + (high - low) * uniforms(seed, int(np.prod(shape))).reshape(shape)


def _uniform(scale: float) -> Draw:
    def draw(seed: int, shape: Shape, dtype: np.dtype, position: int) -> Array:
        return _between(seed, shape, -scale, scale)

    return draw


def _nan_injected(seed: int, shape: Shape, dtype: np.dtype, position: int) -> Array:
    """Each element, with probability 0.05, one of NaN, the infinities and 0; else U[-10, 10)."""
    values = _between(seed, shape, -10.0, 10.0)
    chosen = uniforms(derive(seed, "injected"), values.size).reshape(shape) < 0.05
    which = picks(derive(seed, "which"), values.size, 4).reshape(shape)
    return np.where(chosen, _SPECIAL[which], values)


def _adversarial(tiny: Callable[[np.dtype], float], huge: Callable[[np.dtype], float]) -> Draw:
    """An equal mix of 0, ``tiny``, ``huge`` (both signs), U[-1e3, 1e3) and non-finite elements."""

    def draw(seed: int, shape: Shape, dtype: np.dtype, position: int) -> Array:
        count = int(np.prod(shape))
        kind = picks(derive(seed, "kind"), count, 5).reshape(shape)
        signed = _between(seed, shape, -1.0, 1.0)
        which = picks(derive(seed, "which"), count, 3).reshape(shape)
        choices = [0.0 * signed, tiny(dtype) * signed, huge(dtype) * signed, 1e3 * signed]
        values: Array = np.choose(kind, [*choices, _NONFINITE[which]])
        return values

    return draw


def _smallest(dtype: np.dtype) -> float:
    # Twice the smallest normal number: half of the draws are subnormal.
    return 2.0 * float(np.finfo(dtype).tiny)


def _tenth_of_largest(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).max) / 10.0


def _opposed(seed: int, shape: Shape, dtype: np.dtype, position: int) -> Array:
    """Positive elements in inputs at even places, negative ones at odd places."""
    values = _between(seed, shape, 0.0, 10.0)
    return -values if position % 2 else values


def _constant_rows(seed: int, shape: Shape, dtype: np.dtype, position: int) -> Array:
    rows = _between(seed, (*shape[:-1], 1) if shape else (), -10.0, 10.0)
    return np.broadcast_to(rows, shape).copy()


def _spiked(seed: int, shape: Shape, dtype: np.dtype, position: int) -> Array:
    """Small elements, and in each row one of 10 at a place of its own."""
    values = _between(seed, shape, -0.1, 0.1)
    if not shape:
        return values
    rows = int(np.prod(shape[:-1]))
    at = picks(derive(seed, "spike"), rows, shape[-1])
    flat = values.reshape(rows, shape[-1])
    flat[np.arange(rows), at] = 10.0
    return flat.reshape(shape)


def _ascending(seed: int, shape: Shape, dtype: np.dtype, position: int) -> Array:
    """Rows that rise: later tiles of a row raise a running maximum every time."""
    return np.sort(_between(seed, shape, -10.0, 10.0), axis=-1) if shape else np.zeros(shape)


VALUES: dict[str, Values] = {
    one.name: one
    for one in (
        Values("uniform", "U[-10, 10)", _uniform(10.0)),
        Values("nan-injected", "5% NaN, +Inf, -Inf or 0, else U[-10, 10)", _nan_injected, False),
        Values(
            "adversarial",
            "0, about the smallest normal number, up to a tenth of the largest, U[-1e3, 1e3), "
            "non-finite, in equal shares",
            _adversarial(_smallest, _tenth_of_largest),
            False,
        ),
        Values(
            "adversarial-as-coded",
            "the same with 1e-30 and 1e30 for every dtype, as in the published code",
            _adversarial(lambda _: 5e-31, lambda _: 5e29),
            False,
        ),
        Values("unit", "U[-1, 1)", _uniform(1.0)),
        Values("near-zero", "U[-1e-3, 1e-3)", _uniform(1e-3)),
        Values("opposed", "U[0, 10) in even inputs, the negative in odd ones", _opposed),
        Values("constant-rows", "one U[-10, 10) per row", _constant_rows),
        Values("spiked", "U[-0.1, 0.1) and one 10 per row", _spiked),
        Values("ascending", "U[-10, 10), sorted along rows", _ascending),
    )
}
STRUCTURED = ("uniform", "unit", "near-zero", "opposed", "constant-rows", "spiked", "ascending")
"""Finite distributions that differ in kind: what structured strategies mix."""


def values(name: str) -> Values:
    """The distribution of this name; an unknown one raises ``UsageError``."""
    if name not in VALUES:
        raise unknown_name("distribution of values", name, VALUES)
    return VALUES[name]
