"""Which sizes to try when a problem is scaled down: pure arithmetic on its levers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from kernelassay.problem import Lever

SMALL_BATCH = 2
NORM_BATCH = 8  # batch normalisation of plain features reduces over the batch
SMALLEST = 8
SMALLEST_SPATIAL = 4  # only where wide kernels leave no other choice


def aligned(original: int, target: int) -> int:
    """``target``, rounded to the alignment and the parity of ``original``, at most ``original``."""
    if target >= original or original <= SMALLEST:
        return original
    for unit in (16, 8):
        if original % unit == 0 and target >= unit:
            return target // unit * unit
    return target | 1 if original % 2 else max(2, target & ~1)


def candidates(levers: Sequence[Lever]) -> Iterator[dict[str, int]]:
    """Sizes to start from, most wanted first, each once."""
    seen: set[tuple[int, ...]] = set()
    for sizes in _candidates(levers):
        if tuple(sizes.values()) not in seen:
            seen.add(tuple(sizes.values()))
            yield sizes


def _candidates(levers: Sequence[Lever]) -> Iterator[dict[str, int]]:
    rest = [lever for lever in levers if not lever.is_batch]
    order = sorted({lever.value for lever in rest})
    batches = (SMALL_BATCH, NORM_BATCH)

    def sizes(batch: int, targets: Mapping[str, int]) -> dict[str, int]:
        return {
            lever.name: min(lever.value, batch)
            if lever.is_batch
            else aligned(lever.value, targets[lever.name])
            for lever in levers
        }

    # Extents that differ stay different: a kernel that mixes them up must not pass by symmetry.
    for base in (16, 8):
        ranked = {x.name: base << min(order.index(x.value), 2) for x in rest}
        yield from (sizes(batch, ranked) for batch in batches)
    for cap in (32, 16, 8, 64, 128):
        yield from (sizes(batch, {x.name: cap for x in rest}) for batch in batches)
    for cap, spatial in ((8, 32), (8, 16), (8, 64), (16, 8), (8, SMALLEST_SPATIAL)):
        targets = {x.name: spatial if x.is_spatial else cap for x in rest}
        yield from (sizes(batch, targets) for batch in batches)
    for divisor in (256, 128, 64, 32, 16, 8, 4, 2):
        targets = {x.name: max(SMALLEST, x.value // divisor) for x in rest}
        yield from (sizes(batch, targets) for batch in batches)
    for kept in rest:
        for divisor in (32, 16, 8, 4, 2, 1):
            for cap, spatial in ((16, 16), (8, 16), (8, 8), (8, SMALLEST_SPATIAL)):
                targets = {x.name: spatial if x.is_spatial else cap for x in rest}
                targets[kept.name] = max(cap, kept.value // divisor)
                yield sizes(SMALL_BATCH, targets)
    # Windows upon windows need what no aligned size offers, wide windows fewer channels, all but
    # the ones that are reduced over.
    slid = [x.name for x in rest if x.is_spatial][:3]
    others = [x.name for x in rest if not x.is_spatial]
    caps = [(8, ""), (4, ""), *((cap, name) for cap in (4, 2) for name in others)]
    for cap, wide in caps:
        for box in _boxes(len(slid)):
            targets = {x.name: SMALL_BATCH if x.is_batch else cap for x in levers}
            targets.update(zip(slid, box, strict=True))
            targets |= {wide: SMALLEST} if wide else {}
            yield {x.name: min(x.value, targets[x.name]) for x in levers}


def _boxes(dimensions: int) -> list[tuple[int, ...]]:
    """Extents for up to three dimensions, the smallest volume first; in three, two are equal."""
    if dimensions < 3:
        ladder = (6, 8, 10, 12, 16, 20, 24, 32)
        return sorted(itertools.product(ladder, repeat=dimensions), key=math.prod)
    pairs = itertools.product((4, 6, 8, 12), repeat=2)
    return sorted(((a, b, b) for a, b in pairs), key=math.prod)


def doubled_size(lever: Lever, size: int) -> int:
    """Twice ``size``, aligned, at most the lever's own value."""
    return aligned(lever.value, min(lever.value, 2 * size - size % 2))
