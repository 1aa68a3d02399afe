"""The terminal tables of ``kernelassay suite``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.table import Table

from kernelassay.analysis.score import Share
from kernelassay.report.tables import percent
from kernelassay.synthesis.export import Export
from kernelassay.synthesis.expressible import INEXPRESSIBLE
from kernelassay.synthesis.suites import RECIPE, Curve, Optimum, ProblemCover, Suite, Suites

NAMED = 4
"""Mutants of one purpose that are named; the others are counted, and all are in ``--json``."""
STEPS = (1, 2, 3, 5)

_HELD_OUT = {
    "": "all mutants known",
    "id": "held out: half of the ids",
    "rule": "held out: half of the rules",
    "family": "held out: each family",
    "problem": "held out: each problem",
}


def print_suites(console: Console, result: Suites) -> None:
    """What budgets detect, by chooser and by problem, and what the chosen inputs are for."""
    shapes = "official shapes" if result.official_shapes else "NOT the official shapes (shrunk)"
    if result.unfinished:
        console.print(f"PARTIAL: {len(result.unfinished)} problems are not finished and left out")
    console.print(
        f"{len(result.problems)} problems admitted, {len(result.refused)} not; {shapes}; witnesses"
        f" count at {result.tolerance:g}; detected is what {result.protocol} rejects:"
    )
    console.print(f"  {result.rule}", markup=False)
    _denominators(console, result)
    title = f"Detected of {result.witnessed} witnessed mutants, by inputs per problem"
    _curves(console, title, result, result.official, lambda curve: curve.detected)
    if result.reachable.count < result.witnessed:
        title = f"The same of the {result.reachable.count} that any fit input detects"
        _curves(console, title, result, result.official_reached, lambda curve: curve.reached)
    for way in result.undivided:
        console.print(f"nothing can be held out by {way}: all mutants are of one part")
    if result.told:
        console.print(
            f"{result.told} of the fit inputs were made by a generator that was told of mutants of"
            " the session: to them no mutant is held out"
        )
    console.print(f"{RECIPE}: {'; '.join(result.recipe)}", markup=False)
    _problems(console, result)
    _suites(console, result)
    _kept_out(console, result)


def _denominators(console: Console, result: Suites) -> None:
    inputs = sum(one.inputs for one in result.problems)
    form = f" that can be expressed as {result.expressible}" if result.expressible else ""
    console.print(
        f"{result.witnessed} witnessed mutants; some fit input{form} detects"
        f" {percent(result.reachable)}; {inputs} fit inputs, none of which rejects any of"
        f" {sum(one.correct for one in result.problems)} correct kernels"
    )
    left = sum(len(one.open) for one in result.problems)
    if left:
        console.print(
            f"left out: {left} witnessed mutants with a cell that was lost or does not tell"
        )


def _curves(
    console: Console,
    title: str,
    result: Suites,
    official: Share,
    shares: Callable[[Curve], Mapping[int, Share]],
) -> None:
    budgets = list(shares(result.curves[0]))
    table = Table(title=title, title_justify="left")
    table.add_column("chosen")
    table.add_column("scored on")
    for budget in budgets:
        table.add_column(str(budget), justify="right")
    for curve in result.curves:
        table.add_row(
            curve.chooser,
            _HELD_OUT[curve.held_out],
            *(_short(shares(curve)[budget]) for budget in budgets),
        )
    table.add_row("official", "all of them", *[_short(official)] * len(budgets))
    console.print(table)


def _short(share: Share) -> str:
    """A share whose total stands in the title: ``83.1% (1248)``."""
    return "-" if share.rate is None else f"{100 * share.rate:.1f}% ({share.count})"


def _problems(console: Console, result: Suites) -> None:
    title = "By problem: detected by official inputs, greedily and at best by so many"
    table = Table(title=title, title_justify="left")
    table.add_column("problem")
    for column in (
        "witnessed",
        "reachable",
        "official",
        *map(str, STEPS),
        "all: greedy",
        "cheapest",
    ):
        table.add_column(column, justify="right")
    for one in result.problems:
        table.add_row(
            one.problem,
            str(one.witnessed),
            str(one.reachable),
            str(one.official.count),
            *(_at(one, budget) for budget in STEPS),
            str(len(one.greedy)),
            _inputs(one.cheapest),
        )
    console.print(table)
    behind = [one for one in result.problems if gap(one)]
    most = max(result.problems, key=gap, default=None)
    if behind and most is not None:
        console.print(
            f"greedy falls short of the optimum at some budget on {len(behind)} of"
            f" {len(result.problems)} problems, by at most {gap(most)} mutants ({most.problem})"
        )
    else:
        console.print("greedy reaches the optimum at every budget on every problem")


def gap(one: ProblemCover) -> int:
    """By how many mutants greed falls short of the optimum, at the budget where most."""
    return max(
        (
            optimum.detected - pick.detected
            for optimum, pick in zip(one.optima, one.greedy, strict=True)
        ),
        default=0,
    )


def _at(one: ProblemCover, budget: int) -> str:
    """``12`` or, where the optimum is more, ``12 < 13``."""
    if not one.greedy:
        return "0"
    at = min(budget, len(one.greedy)) - 1
    got, best = one.greedy[at].detected, one.optima[at].detected
    return str(got) if got == best else f"{got} < {best}"


def _inputs(least: Optimum) -> str:
    return f"{len(least.inputs)} ({least.elements} elements)"


def _suites(console: Console, result: Suites) -> None:
    table = Table(
        title=f"Suites chosen ({result.chooser}), and what each input alone detects",
        title_justify="left",
    )
    for column in ("problem", "input"):
        table.add_column(column, overflow="fold")
    for column in ("elements", "detects", "alone"):
        table.add_column(column, justify="right")
    table.add_column("of these", overflow="fold")
    for suite in result.suites:
        for place, one in enumerate(suite.inputs):
            table.add_row(
                f"{suite.problem} {percent(suite.detected)}" if not place else "",
                one.input,
                str(one.elements),
                str(one.detects),
                str(len(one.alone)),
                named(Counter(found.rule for found in one.alone)),
            )
        if not suite.inputs:
            table.add_row(suite.problem, "-", "", "", "", "no input may be chosen")
    console.print(table)
    console.print(f"detected by these suites: {percent(total(result.suites))}")


def total(suites: tuple[Suite, ...]) -> Share:
    """What suites detect together."""
    return Share(
        sum(one.detected.count for one in suites), sum(one.detected.total for one in suites)
    )


def named(rules: Counter[str]) -> str:
    """Rules and how many mutants each has, the most first."""
    order = sorted(rules.items(), key=lambda item: (-item[1], item[0]))
    more = f", and {len(order) - NAMED} more rules" if len(order) > NAMED else ""
    return ", ".join(f"{rule} {count}" for rule, count in order[:NAMED]) + more


def print_export(console: Console, written: Export) -> None:
    """What was written, and every input that was not, with the reason."""
    files = [one for one in written.suites if one.path]
    console.print(
        f"{len(files)} files ({written.form}) and {written.report} in {written.directory}:"
        f" {sum(len(one.inputs) for one in files)} inputs, which detect"
        f" {sum(one.detected for one in files)} mutants",
        markup=False,
    )
    for one in written.suites:
        if not one.path:
            console.print(f"no file: {one.problem}: no input of its suite can be expressed")
        for name, why in one.left_out.items():
            console.print(f"left out: {one.problem} {name}: {why}", markup=False)
        for found in one.inputs:
            if found.without:
                text = f"without its {found.without}: {one.problem} {found.input}"
                console.print(text, markup=False)


def _kept_out(console: Console, result: Suites) -> None:
    parts = {True: 2, False: 1}  # what cannot be expressed has a reason behind that
    reasons = Counter(
        ": ".join(why.split(": ")[: parts[INEXPRESSIBLE in why]])
        for one in result.problems
        for why in one.kept_out.values()
    )
    for why, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        console.print(f"not to choose from: {count} inputs: {why}", markup=False)
