"""Two sessions of trials of one plan, run on different devices or machines: what they agree on.

Usage: python benchmarks/compare_trials.py SESSION OTHER [--nonfinite strict|matched|ignored]

Per kernel and in all: whether it is flagged (any case fails), cases with the same verdict, and
cases with the same output bytes. Ends with 1 if a kernel is flagged in one session alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from columns import table

from kernelassay.illusion.grids import Grid, grids
from kernelassay.illusion.oracle import Rule
from kernelassay.illusion.trials import Trials


def row(one: Grid, other: Grid, at: int, rule: Rule) -> tuple[str, bool, bool, int, int, int]:
    """A kernel: its name, whether flagged in each, cases, equal verdicts and equal bytes."""
    fails, others = one.fails(rule)[at], other.fails(rule)[at]
    same = one.columns["output_digest"][at] == other.columns["output_digest"][at]
    return (
        one.rows[at].name,
        bool(fails.any()),
        bool(others.any()),
        fails.size,
        int((fails == others).sum()),
        int(np.asarray(same).sum()),
    )


def main() -> None:
    """Print the tables."""
    nonfinite = "strict"
    arguments = sys.argv[1:]
    if "--nonfinite" in arguments:
        place = arguments.index("--nonfinite")
        nonfinite = arguments[place + 1]
        del arguments[place : place + 2]
    if len(arguments) != 2:
        sys.exit(__doc__)
    rule = Rule(nonfinite)  # type: ignore[arg-type]
    first, second = (grids(Trials.open(Path(path))) for path in arguments)
    others = {grid.operator: grid for grid in second}
    rows = [
        row(grid, others[grid.operator], at, rule)
        for grid in first
        if grid.operator in others
        for at in range(len(grid.rows))
    ]
    said = {True: "flagged", False: "clean"}
    shown = [(n, said[a], said[b], str(c), str(v), str(d)) for n, a, b, c, v, d in rows]
    columns = ("kernel", "first", "second", "cases", "equal verdicts", "equal bytes")
    print("\n".join(table(columns, shown)))
    cases, verdicts, same = (sum(one[at] for one in rows) for at in (3, 4, 5))
    differing = [one[0] for one in rows if one[1] != one[2]]
    print(
        f"{len(rows)} kernels, {len(rows) - len(differing)} with the same verdict; {cases} cases,"
        f" {verdicts} ({verdicts / cases:.2%}) with the same, {same} ({same / cases:.1%}) with the"
        " same bytes"
    )
    if differing:
        sys.exit(f"flagged in one session alone: {', '.join(differing)}")


if __name__ == "__main__":
    main()
