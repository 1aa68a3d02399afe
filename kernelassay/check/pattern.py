"""The pattern that wrong elements make, told from their places alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

EVERYTHING, ELEMENT, ROWS, COLUMNS, TAIL, TILE, SCATTERED = (
    "everything",
    "element",
    "rows",
    "columns",
    "tail",
    "tile",
    "scattered",
)
KINDS = (EVERYTHING, ELEMENT, ROWS, COLUMNS, TAIL, TILE, SCATTERED)

FILLED = 0.9
"""A box or line counts as wrong as a whole if this share of it is: some values fit by chance."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """``kind`` is one of :data:`KINDS`; ``what`` says it in words, ``how`` how it was told."""

    kind: str
    what: str
    how: str


def pattern_of(mask: NDArray[np.bool_]) -> Pattern:
    """The pattern of the true elements of ``mask``, of which there is at least one.

    Checked in order: one element; everything; the end of the flat output; a box between its
    smallest and largest indices (rows, columns, the end of an axis, a tile); whole lines along the
    last axis (rows), or of all other axes (columns). A part is filled if :data:`FILLED` of it is.
    """
    shape, count = mask.shape, int(mask.sum())
    if mask.size == 1 or _share(mask) >= FILLED:
        return Pattern(EVERYTHING, "everything", f"{count} of {mask.size} elements")
    places = np.argwhere(mask)
    if count == 1:
        return Pattern(ELEMENT, f"the element {_index(places[0])}", "one element is wrong")
    flat = np.flatnonzero(mask.reshape(-1))
    start = int(flat[0])
    if int(flat[-1]) == mask.size - 1 and _share(mask.reshape(-1)[start:]) >= FILLED:
        how = f"{count} of the {mask.size - start} elements from flat index {start} to the end"
        return Pattern(TAIL, f"the tail from flat index {start}", how)
    low, high = places.min(axis=0), places.max(axis=0) + 1
    box = mask[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
    if _share(box) >= FILLED:
        return _box(shape, low, high, count, int(box.size))
    return _lines(mask, count)


def _box(shape: tuple[int, ...], low: Any, high: Any, count: int, size: int) -> Pattern:
    bounds = [(int(a), int(b)) for a, b in zip(low, high, strict=True)]
    partial = [axis for axis, (a, b) in enumerate(bounds) if (a, b) != (0, shape[axis])]
    text = "[" + ", ".join(f"{a}:{b}" for a, b in bounds) + "]"
    how = f"{count} of the {size} elements of the box {text}"
    last = len(shape) - 1
    if len(partial) == 1:
        axis = partial[0]
        a, b = bounds[axis]
        if b == shape[axis] and b - a > 1:
            return Pattern(TAIL, f"the tail of axis {axis} from {a}", how)
        kind = COLUMNS if axis == last else ROWS
        one = "column" if kind == COLUMNS else "row"
        named = f"the {one} {a}" if b - a == 1 else f"the {kind} {a} to {b - 1}"
        return Pattern(kind, f"{named} (axis {axis})" if len(shape) > 2 else named, how)
    if last not in partial and all(bounds[axis][1] - bounds[axis][0] == 1 for axis in partial):
        return Pattern(ROWS, f"one row {text}", how)
    return Pattern(TILE, f"the tile {text}", how)


def _lines(mask: NDArray[np.bool_], count: int) -> Pattern:
    if mask.ndim >= 2:
        rows = mask.reshape(-1, mask.shape[-1])
        for kind, lines in ((ROWS, rows), (COLUMNS, rows.T)):
            hit = lines.any(axis=1)
            if not hit.all() and _share(lines[hit]) >= FILLED:
                numbers = np.flatnonzero(hit)
                named = ", ".join(map(str, numbers[:6])) + (", ..." if len(numbers) > 6 else "")
                how = f"{count} of the {int(lines[hit].size)} elements of {len(numbers)} {kind}"
                return Pattern(kind, f"the {kind} {named}", how)
    share = count / mask.size
    return Pattern(SCATTERED, "scattered", f"{count} of {mask.size} elements ({share:.0%})")


def _share(mask: NDArray[np.bool_]) -> float:
    return float(np.count_nonzero(mask)) / mask.size


def _index(place: Any) -> str:
    return str([int(i) for i in place])
