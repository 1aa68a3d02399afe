"""Extents next to the edges of a kernel: read off its source, block and tile sizes and all.

A loop, a guard or a vector load is at an edge where an extent is a multiple of some integer that
stands in the kernel or in its launch, so that is where sizes are tried: one below, one above, and
one past a second turn.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from kernelassay.problem import Lever
from kernelassay.substrate.lowering import MAX_BLOCKS

LARGEST_TILE = 1024
MIDDLING = 32
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


@dataclass(frozen=True, slots=True)
class Edges:
    """Extents at the edges of some kernels, of middling tiles first, by where they lie.

    ``past`` one element, ``below`` by one, ``twice`` round and one more; ``whole`` vectors and no
    whole tile, where a vectorised loop is taken and a guard decides; ``long`` so that a grid-stride
    loop goes round again, or several blocks stand side by side.
    """

    past: tuple[int, ...]
    whole: tuple[int, ...]
    below: tuple[int, ...]
    twice: tuple[int, ...]
    long: tuple[int, ...]

    @property
    def ladder(self) -> tuple[int, ...]:
        """All of them, each once: in turn one of each place, and single elements early."""
        places = (self.past, self.whole, self.below, self.twice, self.long)
        rows = zip_longest(*places)
        return tuple(dict.fromkeys(n for row in (*islice(rows, 2), (1,), *rows) for n in row if n))


def edges(sources: Iterable[str]) -> Edges:
    """The edges of some kernels."""
    texts = tuple(sources)
    found = {n for text in texts for n in tiles(text)} or {MIDDLING}
    sizes = sorted(found, key=lambda n: (abs(math.log2(n / MIDDLING)), n))
    vector = max((int(m[1] or 4) for t in texts for m in _VECTOR.finditer(t)), default=4)
    turns = MAX_BLOCKS if any(map(wraps, texts)) else 1
    large = sorted(found, reverse=True)
    return Edges(
        past=_each(n + 1 for n in sizes),
        whole=_each(n + vector for n in sizes if n % vector == 0 and n > vector),
        below=_each(n - 1 for n in sizes),
        twice=_each(2 * n + 1 for n in sizes),
        long=_each(turns * n + n // 2 + 1 for n in large),
    )


def _each(extents: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(n for n in extents if n >= 1))


def spread(
    levers: Sequence[Lever], ladder: Sequence[int], turn: int, stride: int = 1
) -> dict[str, int]:
    """Sizes for all levers: in the ``turn``-th way, lever j goes to rung turn + stride j."""
    return {
        lever.name: ladder[(turn + stride * place) % len(ladder)]
        for place, lever in enumerate(levers)
        if ladder
    }


def one_large(levers: Sequence[Lever], large: int, place: int) -> dict[str, int]:
    """One lever at a large extent, the others at few elements, each at another number of them."""
    return {
        lever.name: large if j == place % len(levers) else 2 + j for j, lever in enumerate(levers)
    }
