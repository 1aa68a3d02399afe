"""What ``kernelassay ladder`` prints."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from kernelassay.analysis.mechanism import MECHANISMS
from kernelassay.mutation.rule import FAMILIES
from kernelassay.report.tables import percent
from kernelassay.synthesis.generate.ladder import Ladder, Rung

SHOWN = 5
PUBLISHED = {
    "r0": ("21.6%", "107 false kills"),
    "r1": ("42.9%", "60/60"),
    "r2": ("61.0%", "94%"),
    "r3": ("57.3%", "55/56"),
}
"""Killed, and validity, of arXiv 2609.22220 (1,154 survivors of the official inputs, 30 problems).
Its rungs 1 to 3 are a language model's."""
BESIDE = {"taxonomy": "r2", "search": "r3"}
"""The published rung that has the same knowledge."""


def print_ladder(console: Console, ladder: Ladder) -> None:
    """A row per rung, then who is left, what was refused, and which problems have no rung."""
    console.print(
        f"{ladder.survivors} survivors of {ladder.protocol}, witnessed at {ladder.tolerance:g},"
        f" and {ladder.unobserved} mutants that no input of the session proves wrong;"
        f" at most {ladder.budget} inputs of a problem, seed {ladder.seed}",
        soft_wrap=True,
    )
    console.print(_rungs(ladder))
    if ladder.survivors:
        console.print(_shares(ladder))
    for line in _lines(ladder):
        console.print(line, soft_wrap=True)


def _rungs(ladder: Ladder) -> Table:
    table = Table(title="Killed survivors by rung", title_justify="left")
    for column in ("rung", "is told of survivors"):
        table.add_column(column)
    for column in (
        "killed",
        "false kills",
        "valid inputs",
        "correct kernels rejected",
        "new witnesses",
        "cells",
        "published: killed",
        "valid",
    ):
        table.add_column(column, justify="right")
    for rung in ladder.rungs:
        table.add_row(
            rung.name,
            "no" if rung.blind else "yes",
            percent(rung.killed),
            str(rung.false_kills),
            percent(rung.valid),
            str(rung.correct_rejected),
            percent(rung.new_witnesses),
            str(rung.cells),
            *PUBLISHED.get(BESIDE.get(rung.name, rung.name), ("-", "-")),
        )
    return table


def _shares(ladder: Ladder) -> Table:
    table = Table(title="Killed, by reason of survival and by family", title_justify="left")
    table.add_column("rung")
    names = [*MECHANISMS, *FAMILIES]
    held = {n for r in ladder.rungs for n in (*r.by_mechanism, *r.by_family)}
    shown = [name for name in names if name in held]
    for name in shown:
        table.add_column(name, justify="right")
    for rung in ladder.rungs:
        shares = {**rung.by_mechanism, **rung.by_family}
        table.add_row(rung.name, *(percent(shares[n]) if n in shares else "-" for n in shown))
    return table


def _lines(ladder: Ladder) -> Iterator[str]:
    for rung in ladder.rungs:
        yield from _of_rung(rung)
    yield (
        "published: arXiv 2609.22220, on 1,154 survivors of 30 problems; its rungs 1 to 3 are a"
        " language model's; taxonomy stands beside 2 and search beside 3, which know as much"
    )
    yield f"{ladder.ceiling_cells} cells more were run, once for all rungs, to locate the ceilings"
    for problem, why in ladder.aside.items():
        yield f"no rung: {problem}: {why}"


def _of_rung(rung: Rung) -> Iterator[str]:
    objections = [
        f"{one.id}: {one.objection}"
        for problem in rung.problems
        for one in problem.inputs
        if one.objection
    ]
    for line in objections[:SHOWN]:
        yield f"{rung.name}: not valid: {line}"
    if len(objections) > SHOWN:
        yield f"{rung.name}: {len(objections) - SHOWN} more are not valid (all: --json)"
    if rung.failures:
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(rung.failures.items()))
        yield f"{rung.name}: what became no input, or no part of one: {told}"
    for problem in rung.problems:
        if problem.refused:
            yield f"{rung.name}: nothing for {problem.problem}: {problem.refused}"
