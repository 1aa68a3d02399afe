"""The terminal tables of ``kernelassay anatomy``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from kernelassay.analysis.anatomy import Anatomy, GroupKills, Rows
from kernelassay.report.tables import percent

LISTED = 12


def print_anatomy(console: Console, result: Anatomy) -> None:
    """Patterns, core and rules, then what whole rows tell, or why they do not."""
    if result.unfinished:
        console.print(f"PARTIAL: {len(result.unfinished)} problems are not finished and left out")
    console.print(
        f"{result.problems} problems admitted, {len(result.refused)} not; witnessed at"
        f" {result.tolerance:g}: {percent(result.witnessed)} of the distinct mutants"
    )
    for name, where in result.not_scored.items():
        console.print(f"not scored: {name}: {where}", markup=False)
    if result.unscored:
        console.print(
            f"in no pattern: {result.unscored} witnessed mutants that some protocol does not score"
        )
    _patterns(console, result)
    _core(console, result)
    _missed_rules(console, result)
    if result.rows is None:
        console.print(f"not told: minimal mutants, kills by group: {result.no_rows}")
        console.print(f"  hint: {result.hint}")
        return
    _groups(console, "Kills by group of inputs", result.rows.groups)
    console.print(f"killed by several groups: {percent(result.rows.several)}")
    _groups(console, "Kills by targeted values; alone: nothing else kills", result.rows.transforms)
    _minimal(console, result.rows)


def _table(title: str, first: Sequence[str], *counts: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in first:
        table.add_column(column)
    for column in counts:
        table.add_column(column, justify="right")
    return table


def _patterns(console: Console, result: Anatomy) -> None:
    table = _table("Who misses together", result.protocols, "mutants")
    for pattern in result.patterns:
        marks = ("missed" if name in pattern.missed_by else "-" for name in result.protocols)
        table.add_row(*marks, percent(pattern.mutants))
    console.print(table)


def _core(console: Console, result: Anatomy) -> None:
    core = result.core
    console.print(f"every protocol misses: {percent(core.mutants)}")
    for what, shares in (("family", core.by_family), ("problem", core.by_problem)):
        found = {name: share for name, share in shares.items() if share.count}
        worst = sorted(found.items(), key=lambda item: (-item[1].count, item[0]))
        if worst:
            console.print(
                f"  by {what}: {_joined([f'{n} {percent(s)}' for n, s in worst])}", markup=False
            )


def _missed_rules(console: Console, result: Anatomy) -> None:
    missed = result.missed_rules
    for name, rules in missed.by_protocol.items():
        console.print(
            f"rules all of whose witnessed mutants {name} misses: {len(rules)} of {missed.rules},"
            f" {sum(rules.values())} of {result.core.mutants.total} mutants"
        )
    console.print(
        f"rules that every protocol always misses: {len(missed.by_every)} of {missed.rules}:"
        f" {_counted(missed.by_every)}"
    )


def _groups(console: Console, title: str, groups: Sequence[GroupKills]) -> None:
    table = _table(title, ["group"], "inputs", "kills", "alone")
    for group in groups:
        table.add_row(group.group, str(group.inputs), percent(group.kills), percent(group.alone))
    console.print(table)


def _minimal(console: Console, rows: Rows) -> None:
    lost = rows.mutants.total - rows.mutants.count
    if lost:
        console.print(f"{lost} witnessed mutants lost a cell and are left out of what rows tell")
    console.print(
        f"minimal mutants: {percent(rows.minimal)}; disjoint ones, one of each kind of row:"
        f" {percent(rows.disjoint)}"
    )
    table = _table(
        "Minimal mutants by problem",
        ["problem"],
        "witnessed",
        "kinds of row",
        "minimal",
        "disjoint",
    )
    for one in rows.by_problem:
        counts = (one.mutants, one.kinds, one.minimal, one.disjoint)
        table.add_row(one.problem, *map(str, counts))
    console.print(table)
    table = _table("Detected", ["protocol"], "of all", "of the minimal", "of the disjoint")
    for score in rows.scores:
        shares = (score.all, score.minimal, score.disjoint)
        table.add_row(score.protocol, *map(percent, shares))
    console.print(table)
    console.print(
        f"rules without a minimal mutant: {len(rows.without_minimal)} of {rows.rules}:"
        f" {_counted(rows.without_minimal)}"
    )


def _counted(rules: Mapping[str, int]) -> str:
    order = sorted(rules.items(), key=lambda item: (-item[1], item[0]))
    return _joined([f"{rule} ({count})" for rule, count in order]) or "none"


def _joined(items: Sequence[str]) -> str:
    more = f", and {len(items) - LISTED} more (--json)" if len(items) > LISTED else ""
    return ", ".join(items[:LISTED]) + more
