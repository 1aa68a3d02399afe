"""Sizes to try for a network whose cost module-level integers alone cannot bring down.

Channel counts, image extents and the numbers of repeated layers are scaled together: those at
module level, and those written inside the classes and functions of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from kernelassay.literals import (
    DEPTH,
    DEPTH_WORDS,
    FACTOR,
    IMAGE_WORDS,
    SMALLEST_IMAGE,
    SMALLEST_LITERAL,
    SPATIAL,
    Literal,
)
from kernelassay.problem import Lever, Problem

BATCH = 2
DEPTH_KEPT = 2
_SMALLEST_SCALED_IMAGE = 16
_LENGTH_WORDS = frozenset({"seqlen", "seq", "sequence", "length"})
# Divisor and floor of channel counts. A floor keeps short reductions long enough, but breaks sums
# of channels that must add up; the search tries both.
_CHANNELS = (
    (8, 8), (16, 8), (8, 1), (4, 8), (4, 1), (16, 1), (2, 8), (2, 1), (2, 24), (1, 1),
)  # fmt: skip
_IMAGES = (64, 32, 96, 128, 16, 1 << 30)


def network_candidates(problem: Problem, literals: Sequence[Literal]) -> Iterator[dict[str, int]]:
    """Overrides to try in turn, without repetition."""
    seen: set[tuple[tuple[str, int], ...]] = set()
    images = [x.value for x in literals if x.kind == SPATIAL]
    images += [lever.value for lever in problem.sizes if _is_image(lever)]
    for (divisor, floor), image in product(_CHANNELS, _IMAGES):
        share = min(1.0, image / max(images)) if images else 1.0
        for rounding in (0, 1) if any(x.kind == FACTOR for x in literals) else (0,):
            sizes = {
                lever.name: _lever(lever, divisor, floor, share)
                for lever in problem.levers
                if lever.is_size or _is_depth(lever) or _is_length(lever)
            }
            for x in literals:
                if x.kind == FACTOR:
                    sizes[x.name] = max(1, min(x.value, int(x.value * share) + rounding))
                else:
                    sizes[x.name] = _literal(x, divisor, floor, share)
            key = tuple(sizes.items())
            if key not in seen:
                seen.add(key)
                yield sizes


def _lever(lever: Lever, divisor: int, floor: int, share: float) -> int:
    if _is_depth(lever):
        return min(lever.value, DEPTH_KEPT)
    if lever.is_batch:
        return min(lever.value, BATCH)
    if _is_image(lever):
        return _image(lever.value, share)
    return scaled(lever.value, divisor, floor)


def _literal(literal: Literal, divisor: int, floor: int, share: float) -> int:
    if literal.kind == DEPTH:
        return min(literal.value, DEPTH_KEPT)
    if literal.kind == SPATIAL:
        return _image(literal.value, share)
    return scaled(literal.value, divisor, floor)


def _image(value: int, share: float) -> int:
    """An image extent; the extents of one image keep their proportions down to 16 pixels."""
    return max(round(value * share), min(value, _SMALLEST_SCALED_IMAGE))


def scaled(value: int, divisor: int, floor: int) -> int:
    """``value`` divided, but not below ``floor``; what is no channel count stays."""
    if value < SMALLEST_LITERAL:
        return value
    return max(value // divisor, min(value, floor))


def _is_image(lever: Lever) -> bool:
    words = lever.words
    in_shape = "shape" in words and "[" in lever.name
    return lever.value >= SMALLEST_IMAGE and (
        lever.is_spatial or in_shape or bool(words & IMAGE_WORDS)
    )


def _is_length(lever: Lever) -> bool:
    """Also the longest sequence a model has room for, which follows the sequences."""
    return bool(lever.words & _LENGTH_WORDS) and lever.value >= SMALLEST_LITERAL


def _is_depth(lever: Lever) -> bool:
    return bool(lever.words & DEPTH_WORDS) and lever.value > DEPTH_KEPT
