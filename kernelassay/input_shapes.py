"""Which sizes to try: extents next to every tile and warp edge, several levers at once.

Pure arithmetic on a problem's levers. Whether a problem accepts a combination shows only when it
runs; pass ``trial`` (from inside a worker) to keep the combinations that do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kernelassay.problem import Lever, Problem

# Ordered so that the first few already straddle a warp, a small tile and a block, and that the
# first combination leaves three elements after a loop over groups of four. 36 and 68 fill whole
# groups of four but no whole tile. 1025 elements are 256 groups of four and one: a block of 256
# threads goes round once. At 1285 it goes round twice.
LADDER = (33, 7, 36, 1, 129, 63, 68, 31, 257, 1025, 65, 127, 255, 1285)

# All sizes at once this small, by the rung after which it is tried: what starts, ends or is
# skipped at the edge of an extent is then a gross part of it. Above 1 each lever gets another
# size, so that one taken for another shows.
TINY = {0: 1, 2: 3, 3: 7, 4: 2}

SMALL_VOLUME = 1 << 15
GROWTH = 2

_GROUP_WORDS = frozenset({"group", "groups"})
_CHANNEL_WORDS = frozenset({"channel", "channels", "features", "hidden", "dim", "c"})
_WINDOW_WORDS = frozenset({"kernel", "pool", "maxpool", "avgpool"})

Verdict = Literal["fits", "too-large", "refused"]
Overrides = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Small:
    """Sizes, of levers and literals, that make a problem small; ``reason`` says why there are none.

    No sizes and no reason: the official sizes are small.
    """

    sizes: Overrides = ()
    reason: str = ""


def shape_overrides(
    problem: Problem,
    count: int,
    trial: Callable[[Mapping[str, int]], Verdict] | None = None,
    frozen: frozenset[str] = frozenset(),
) -> tuple[Overrides, ...]:
    """Up to ``count`` combinations of lever values, in a fixed order.

    Input k moves lever j to the (k + 4j)-th rung of the ladder; in the second turn of the levers,
    as far as ``count`` reaches, one after the other, from the last, goes to the highest, where
    several blocks lie along it. The product of all
    sizes (a bound on elements and a measure of work) stays below twice the present one or 32k,
    whichever is larger; to stay there the other levers give way before lever k does. ``trial`` runs
    a combination: what it finds too large is lowered likewise, and where it refuses one, levers are
    put back until it is accepted. With ``trial``, inputs with every size :data:`TINY` lie between.
    Levers named in ``frozen`` stay as they are.
    """
    levers = tuple(lever for lever in problem.sizes if lever.name not in frozen)
    # A name may suggest a tie to a group count that the problem does not have.
    free = {x.name for x in levers if trial and trial({x.name: x.value + 1}) == "fits"}
    rungs = [_rungs(problem, lever, LADDER, lever.name in free) for lever in levers]
    limit = max(GROWTH * math.prod(lever.value for lever in levers), SMALL_VOLUME)
    chosen: dict[Overrides, None] = {}
    for k in range(4 * count if levers else 0):
        sizes = [steps[(k + 4 * j) % len(steps)] for j, steps in enumerate(rungs)]
        turn, kept = divmod(k, len(levers))
        if turn == 1:  # the last levers first: blocks and strides mostly run along them
            kept = len(levers) - 1 - kept
            sizes[kept] = max(rungs[kept])
        while math.prod(sizes) > limit and _lower(sizes, levers, rungs, kept):
            pass
        moved = _moved(levers, sizes)
        if trial is not None:
            while (verdict := trial(moved)) == "too-large" and _lower(sizes, levers, rungs, kept):
                moved = _moved(levers, sizes)
            moved = moved if verdict == "fits" else _accepted(moved, trial)
        if moved:
            chosen.setdefault(tuple(moved.items()))
        if trial is not None and k in TINY:
            spread = 2 if TINY[k] > 1 else 0
            extents = [(TINY[k] + spread * j,) for j in range(len(levers))]
            smallest = [
                _rungs(problem, lever, rung, lever.name in free)[0]
                for lever, rung in zip(levers, extents, strict=True)
            ]
            tiny = _moved(levers, smallest)
            tiny = tiny if trial(tiny) == "fits" else _accepted(tiny, trial)
            if tiny:
                chosen.setdefault(tuple(tiny.items()))
        if len(chosen) >= count:
            break
    return tuple(chosen)[:count]


def fitting(
    problem: Problem,
    levers: Sequence[Lever],
    wanted: Mapping[str, int],
    trial: Callable[[Mapping[str, int]], Verdict],
) -> dict[str, int]:
    """Of the ``wanted`` sizes of some levers, those that a problem accepts, and that differ.

    Each is first made as large as windows, and a multiple of a group count.
    """
    sizes = [_rungs(problem, lever, (wanted[lever.name],)) for lever in levers]
    pairs = zip(levers, sizes, strict=True)
    moved = {lever.name: size for lever, (size,) in pairs if size != lever.value}
    return moved if not moved or trial(moved) == "fits" else _accepted(moved, trial)


def _moved(levers: tuple[Lever, ...], sizes: list[int]) -> dict[str, int]:
    pairs = zip(levers, sizes, strict=True)
    return {lever.name: size for lever, size in pairs if size != lever.value}


def _rungs(
    problem: Problem, lever: Lever, ladder: tuple[int, ...], free: bool = False
) -> list[int]:
    """``ladder`` for one lever: no smaller than the windows, and multiples of a group count.

    A ``free`` lever is no such multiple.
    Where no rung is as large as the windows, the least size that is.
    """
    multiple, floor = 1, 1
    if lever.words & _CHANNEL_WORDS and not free:
        groups = [x.value for x in problem.levers if x.words & _GROUP_WORDS and x.value > 0]
        multiple = math.lcm(*(g for g in groups if lever.value % g == 0))
    if lever.is_spatial and not lever.words & _CHANNEL_WORDS:
        dilation = max((x.value for x in problem.levers if "dilation" in x.words), default=1)
        for window in problem.levers:
            if window.words & _WINDOW_WORDS and "stride" not in window.words:
                spread = dilation if "kernel" in window.words else 1
                floor = max(floor, (window.value - 1) * spread + 1)
    steps = [max(1, math.ceil(rung / multiple)) * multiple for rung in ladder if rung >= floor]
    return list(dict.fromkeys(steps)) or [math.ceil(floor / multiple) * multiple]


def _lower(sizes: list[int], levers: tuple[Lever, ...], rungs: list[list[int]], kept: int) -> bool:
    """Lower one size by a rung, the largest first and ``kept`` last; False when all are lowest."""
    lower = [sorted({*steps, lever.value}) for steps, lever in zip(rungs, levers, strict=True)]
    movable = [j for j, size in enumerate(sizes) if size > lower[j][0]]
    if not movable:
        return False
    j = max(movable, key=lambda j: (j != kept, sizes[j]))
    sizes[j] = max(step for step in lower[j] if step < sizes[j])
    return True


def _accepted(
    moved: dict[str, int], trial: Callable[[Mapping[str, int]], Verdict]
) -> dict[str, int]:
    kept: dict[str, int] = {}
    for name, size in moved.items():
        if trial({**kept, name: size}) == "fits":
            kept[name] = size
    return kept
