"""Which mutants say all: a mutant subsumes those that every killer of its own kills, too.

Over kill rows, arrays of shape [mutants, inputs]: row a subsumes row b if a kills anywhere and b
kills wherever a does. Whoever detects a, by killing inputs, then detects b. Rows that nothing
subsumes but their equals are *minimal*. A row that kills nowhere neither subsumes nor is minimal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelassay.matrix import Bools


def subsuming(rows: Bools) -> Bools:
    """Which row subsumes which. [rows, rows]: entry (a, b) tells that a subsumes b."""
    kills = rows.astype(np.int64)
    spared = kills @ (1 - kills).T
    return np.asarray((spared == 0) & np.any(rows, axis=1, keepdims=True))


def minimal(rows: Bools) -> Bools:
    """The rows that no other kind of row subsumes. [rows]."""
    below = subsuming(rows)
    strictly = below & ~below.T
    return np.asarray(rows.any(axis=1) & ~strictly.any(axis=0))


def firsts(rows: Bools) -> NDArray[np.intp]:
    """The first row of each kind, ascending: equal rows are of one kind."""
    if not rows.size:
        return np.zeros(min(1, len(rows)), dtype=np.intp)
    _, first = np.unique(rows, axis=0, return_index=True)
    return np.sort(first)
