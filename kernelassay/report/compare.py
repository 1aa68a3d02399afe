"""The terminal tables of ``kernelassay compare``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from rich.console import Console
from rich.table import Table

from kernelassay.analysis.compare import Compared, Comparison, Paired
from kernelassay.analysis.decompose import Decomposition, Split, Taken
from kernelassay.analysis.ground import Aside, Gap
from kernelassay.analysis.score import Share
from kernelassay.analysis.sweep import Sweep
from kernelassay.report.tables import percent

MOST_ORDERS = 6
"""More orders of parts than those of three are left to ``--json``."""


def print_compared(console: Console, result: Compared) -> None:
    """All tables of a comparison and its sweeps."""
    shapes = "official shapes" if result.official_shapes else "NOT the official shapes (shrunk)"
    if result.unfinished:
        console.print(f"PARTIAL: {len(result.unfinished)} problems are not finished and left out")
    console.print(
        f"{result.problems} problems admitted; {shapes}; witnesses count at {result.tolerance:g}"
    )
    if result.comparison is not None:
        _comparison(console, result.comparison)
    for sweep in result.sweeps:
        _sweep(console, sweep)


def points(count: int | Fraction, total: int) -> str:
    """``+4.0 (24/600)``: points of a hundred, and the exact count of the total."""
    if not total:
        return "- (0/0)"
    return f"{float(100 * Fraction(count) / total):+.1f} ({count} of {total})"


def _comparison(console: Console, comparison: Comparison) -> None:
    ground = comparison.ground
    names = comparison.first.name, comparison.second.name
    pairs = (comparison.detection, comparison.false_rejection, comparison.originals)
    _table(
        console,
        f"{names[0]} and {names[1]} on the same candidates of {len(ground.problems)} problems",
        ("rejected", "witnessed mutants", "correct variants", "mutated originals"),
        (
            ("by both", *(str(pair.both) for pair in pairs)),
            (f"only by {names[0]}", *(str(pair.only_first) for pair in pairs)),
            (f"only by {names[1]}", *(str(pair.only_second) for pair in pairs)),
            ("by neither", *(str(pair.neither) for pair in pairs)),
            (f"by {names[0]}", *(percent(pair.first) for pair in pairs)),
            (f"by {names[1]}", *(percent(pair.second) for pair in pairs)),
            ("difference in points", *(_difference(pair) for pair in pairs)),
            ("90% band, problems drawn anew", *(_band(pair) for pair in pairs)),
            ("p, exact McNemar test", *(f"{pair.p_value:.2g}" for pair in pairs)),
        ),
    )
    console.print("The test takes mutants of one problem as independent, the band does not.")
    _left_out(console, ground.aside, ground.set_aside, ground.lost)
    _decomposition(console, comparison.decomposition, names)


def _difference(paired: Paired) -> str:
    return points(paired.only_second - paired.only_first, paired.total)


def _band(paired: Paired) -> str:
    if paired.band is None:
        return "-"
    return f"[{100 * paired.band[0]:+.1f}, {100 * paired.band[1]:+.1f}]"


def _decomposition(console: Console, found: Decomposition, names: tuple[str, str]) -> None:
    if not found.parts:
        console.print("The two differ in nothing that decides a verdict.")
        return
    if len(found.parts) == 1:
        console.print(f"The two differ in {found.parts[0]} alone: the difference is all of it.")
        return
    _gaps(console, found.gaps)
    if found.gaps:
        console.print("so the difference is not split")
    if found.detection is None or found.false_rejection is None:
        return
    splits = (found.detection, found.false_rejection)
    where = f"on {len(found.problems)} problems"
    _table(
        console,
        f"{names[0]} with parts of {names[1]}, {where}",
        ("taken from the second", "detected", "correct kernels rejected"),
        (
            (
                _named(taken, found.parts),
                *(percent(Share(s.counts[taken], s.total)) for s in splits),
            )
            for taken in found.hybrids
        ),
    )
    for title, split in zip(("detection", "false rejection"), splits, strict=True):
        _split(console, title, split)
    _left_out(console, found.aside, found.set_aside, found.lost)


def _named(taken: Taken, parts: Taken) -> str:
    if not taken:
        return "nothing: the first"
    return f"all: the second ({', '.join(parts)})" if taken == parts else ", ".join(taken)


def _split(console: Console, title: str, split: Split) -> None:
    if not split.orders:
        console.print(f"No part changes {title}.")
        return
    _table(
        console,
        f"Points of {title} that each part adds, of {points(split.difference, split.total)}",
        ("part", "before all others", "after all others", "Shapley share"),
        (
            (p.name, *(points(n, split.total) for n in (p.first, p.last, p.shapley)))
            for p in split.parts
        ),
    )
    if len(split.orders) > MOST_ORDERS:
        console.print(f"  {len(split.orders)} orders of parts: --json lists them")
        return
    for order in split.orders:
        if len(order) > 1:
            steps = (f"{part} {points(gain, split.total)}" for part, gain in order)
            console.print(f"  {', then '.join(steps)}")


def _sweep(console: Console, sweep: Sweep) -> None:
    own = ", ".join(f"{tolerance:g}" for tolerance in sweep.tolerances)
    _table(
        console,
        f"{sweep.protocol} (itself at {own}) at other tolerances, {len(sweep.problems)} problems",
        ("tolerance", "detected", "correct kernels rejected", "mutated originals rejected"),
        (
            (f"{step.tolerance:g}", percent(step.detection), percent(rejected), percent(originals))
            for step in sweep.steps
            if step.detection is not None
            and (rejected := step.false_rejection) is not None
            and (originals := step.originals) is not None
        ),
    )
    _gaps(console, [step.gap for step in sweep.steps if step.gap is not None])
    _left_out(console, sweep.aside, sweep.set_aside, sweep.lost)


def _gaps(console: Console, gaps: Sequence[Gap]) -> None:
    for gap in gaps:
        console.print(f"not scored: {gap.where}: {gap.what}")
    for hint in dict.fromkeys(gap.hint for gap in gaps):
        console.print(f"  hint: {hint}")


def _left_out(console: Console, aside: Sequence[Aside], unfair: int, lost: int) -> None:
    for one in aside:
        console.print(f"set aside: {one.problem}: {one.why} ({one.protocol})")
    if unfair:
        console.print(f"{unfair} witnessed mutants left out: their own correct kernel is rejected")
    if lost:
        console.print(f"{lost} witnessed mutants left out: an infrastructure error cost a cell")


def _table(
    console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
