"""Plain columns for what benchmarks print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelassay.analysis.score import Share

NONE = "-"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    cells = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def rate(share: Share) -> str:
    """A share as a percentage alone."""
    return NONE if share.rate is None else f"{100 * share.rate:.1f}%"
