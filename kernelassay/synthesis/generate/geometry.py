"""Extents next to the edges of a kernel: read off its source, block and tile sizes and all.

A loop, a guard or a vector load is at an edge where an extent is a multiple of some integer that
stands in the kernel or in its launch, so that is where sizes are tried: one below, one above, and
one past a second turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kernelassay.problem import Lever
from kernelassay.substrate.lowering import MAX_BLOCKS

LARGEST_TILE = 1024
_VECTOR = re.compile(r"\b(?:float|int|uint|double|half|bfloat16)(2|4|8)\b|\b(?:u?int|float)4\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INTEGER = re.compile(r"(?<![\w.])(\d+)[uUlL]*(?![\w.])")
_NUMBER = re.compile(r"(?<![\w.])(\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?[fF]?(?![\w.])")
_WRAPS = re.compile(r"\bgridDim\b|\bmax_blocks\b")


def tiles(source: str) -> tuple[int, ...]:
    """The integers from 2 to 1024 of a kernel source, ascending, with its vector widths."""
    text = _COMMENT.sub("", source)
    found = {int(match) for match in _INTEGER.findall(text)}
    found |= {int(match[1] or 4) for match in _VECTOR.finditer(text)}
    return tuple(sorted(n for n in found if 2 <= n <= LARGEST_TILE))


def wraps(source: str) -> bool:
    """Whether a grid-stride loop may take a second turn in some kernel of a source."""
    return _WRAPS.search(source) is not None


def numbers(text: str) -> tuple[float, ...]:
    """The numbers of a piece of source, ascending."""
    return tuple(sorted({float(match) for match in _NUMBER.findall(_COMMENT.sub("", text))}))


def extents(sources: Iterable[str]) -> tuple[int, ...]:
    """Extents at the edges of some kernels, those first that lie past the most edges at once.

    One above and one below each tile, in turn from the largest; a second turn; a grid that wraps;
    and single elements.
    """
    texts = tuple(sources)
    sizes = sorted({n for text in texts for n in tiles(text)}, reverse=True) or [32]
    edges: list[int] = []
    for size in sizes:
        edges += [size + 1, size - 1]
    turns = [2 * size + 1 for size in sizes] + [2 * size - 1 for size in sizes]
    around = [size * MAX_BLOCKS + 1 for size in sizes if any(map(wraps, texts))]
    ladder = [*edges[:4], *turns[:2], *around[:2], 1, *edges[4:], *turns[2:], *around[2:], *sizes]
    return tuple(dict.fromkeys(n for n in ladder if n >= 1))


def spread(
    levers: Sequence[Lever], ladder: Sequence[int], turn: int, stride: int = 3
) -> dict[str, int]:
    """Sizes for all levers: in the ``turn``-th way, lever j goes to rung turn + stride j."""
    return {
        lever.name: ladder[(turn + stride * place) % len(ladder)]
        for place, lever in enumerate(levers)
    }


def one_large(
    levers: Sequence[Lever], large: int, place: int, small: Mapping[int, int] | None = None
) -> dict[str, int]:
    """One lever at a large extent, the others at few elements, each at another number of them."""
    few = small or {}
    return {
        lever.name: large if j == place % len(levers) else few.get(j, 2 + j)
        for j, lever in enumerate(levers)
    }
