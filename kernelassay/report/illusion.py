"""What ``kernelassay illusion`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from kernelassay.analysis.score import Share
from kernelassay.illusion.calibrate import AS_THEY_STAND, Calibrated, Outcome
from kernelassay.illusion.op import Op
from kernelassay.illusion.scores import MutantScore, StrategyScore, Summary, interval
from kernelassay.illusion.trials import CONTROL, FAULTY, OWN
from kernelassay.mutation.rule import FAMILIES
from kernelassay.report.tables import percent

PUBLISHED = {
    "default": ("57/80", "0/128"),
    "boundary": ("62/80", "0/128"),
    "regular": ("51/80", "0/128"),
    "single_dtype_f32": ("59/80", "0/128"),
    "single_dtype_f16": ("59/80", "3/128"),
    "nan_injected": ("75/80", "93/128"),
    "adversarial": ("79/80", "120/128"),
}
"""Failing cases of faulty kernels and of controls of arXiv 2606.27396 (eight cases a kernel)."""


MARKS = {CONTROL: "", FAULTY: " (faulty)", OWN: " (your own)"}


def print_corpus(console: Console, ops: Sequence[Op]) -> None:
    """A row per kernel."""
    table = Table(title=f"{len(ops)} kernels", title_justify="left")
    for column in ("kernel", "language", "shapes", "dtypes and tolerances", "fault", "hides where"):
        table.add_column(column)
    for op in ops:
        tolerances = ", ".join(f"{dtype} {op.tolerance(dtype):g}" for dtype in op.dtypes)
        dims = " ".join(f"{n}{{{','.join(map(str, s))}}}" for n, s in op.schema.dims.items())
        fault = op.fault
        table.add_row(
            op.name,
            op.language,
            dims,
            tolerances,
            fault.what if fault else "",
            fault.hides if fault else "",
        )
    console.print(table)


def ranged(share: Share) -> str:
    """A share with its interval."""
    found = interval(share)
    if found is None:
        return percent(share)
    return f"{percent(share)}  {100 * found[0]:.0f}-{100 * found[1]:.0f}"


def print_summary(console: Console, summary: Summary) -> None:
    """The corpus, the one-shape check beside it, the strategies, then mutants."""
    console.print(summary.in_words, soft_wrap=True)
    if summary.strategies:
        _kernels(console, summary)
        _strategies(console, summary)
    if summary.changing:
        names = ", ".join(summary.changing)
        console.print(f"write over an input, which this oracle does not see: {names}", markup=False)
    if summary.buckets.generated:
        _mutants(console, summary)


def _kernels(console: Console, summary: Summary) -> None:
    table = Table(title="Failing cases by kernel and strategy, %", title_justify="left")
    table.add_column("kernel")
    names = [one.strategy for one in summary.strategies]
    for name in (*names, *summary.one_shape):
        table.add_column(name, justify="right")
    for at, kernel in enumerate(summary.strategies[0].kernels):
        shares = [one.kernels[at].fails for one in summary.strategies]
        cells = [f"{100 * (share.rate or 0):.0f}" for share in shares]
        checks = [_verdict(rejected[kernel.name]) for rejected in summary.one_shape.values()]
        table.add_row(kernel.name + MARKS[kernel.role], *cells, *checks)
    console.print(table)
    for name, rejected in summary.one_shape.items():
        missed = [
            k.name
            for k in summary.strategies[0].kernels
            if k.role == FAULTY and not rejected[k.name]
        ]
        total = sum(k.role == FAULTY for k in summary.strategies[0].kernels)
        which = ", ".join(missed) or "-"
        if total:
            line = f"{name}: accepts {len(missed)} of {total} faulty kernels ({which})"
            console.print(line, soft_wrap=True)


def _verdict(rejected: bool) -> str:
    return "rejects" if rejected else "accepts"


def _strategies(console: Console, summary: Summary) -> None:
    table = Table(title="Strategies on the corpus (95% intervals)", title_justify="left")
    for column in ("strategy", "non-finite"):
        table.add_column(column)
    for column in ("recall, cases", "false, cases", "faulty flagged", "controls accused"):
        table.add_column(column, justify="right")
    table.add_column("published: recall, false", justify="right")
    rows: Iterable[tuple[str, StrategyScore]] = (
        *((summary.rule.nonfinite, one) for one in summary.strategies),
        *((name, one) for name, scores in summary.others.items() for one in scores),
    )
    for nonfinite, one in rows:
        table.add_row(
            one.strategy,
            nonfinite,
            ranged(one.recall),
            ranged(one.false),
            percent(one.flagged),
            percent(one.accused),
            ", ".join(PUBLISHED.get(one.strategy, ())) if nonfinite == "strict" else "",
        )
    console.print(table)


def _mutants(console: Console, summary: Summary) -> None:
    made = summary.buckets
    console.print(
        f"{made.generated} mutants = {made.stillborn} stillborn + {made.equivalent} equivalent"
        f" + {made.duplicate} duplicate + {made.distinct} distinct\n"
        f"{made.distinct} distinct = {made.witnessed} witnessed + {made.flagged} flagged only"
        f" + {made.unobserved} unobserved + {made.unjudged} not judged on this device",
        soft_wrap=True,
    )
    if made.stopped:
        ends = ", ".join(f"{number} {outcome}" for outcome, number in made.stopped.items())
        console.print(f"witnessed without an output: {ends}", soft_wrap=True)
    table = Table(title="Witnessed mutants detected, by budget of cases", title_justify="left")
    table.add_column("strategy")
    for column in ("cases", "detected", "band of the missed share", "correct kernels rejected"):
        table.add_column(column, justify="right")
    families = [f for f in FAMILIES if any(f in one.by_family for one in summary.mutants)]
    for family in families:
        table.add_column(family, justify="right")
    for one in summary.mutants:
        table.add_row(*_mutant_row(one, families))
    console.print(table)


def _mutant_row(one: MutantScore, families: Sequence[str]) -> list[str]:
    none = Share(0, 0)
    rates = [one.by_family.get(family, none).rate for family in families]
    return [
        one.strategy,
        "all" if one.budget is None else str(one.budget),
        percent(one.detection),
        "-" if one.band is None else f"{100 * one.band[0]:.1f}-{100 * one.band[1]:.1f}%",
        percent(one.false),
        *("-" if rate is None else f"{100 * rate:.1f}" for rate in rates),
    ]


def print_calibration(
    console: Console, fits: Sequence[Calibrated], outcomes: Sequence[Outcome]
) -> None:
    """The fitted tolerances, and what each way detects and rejects wrongly."""
    table = Table(title="Tolerances, as published: p95 x 1.5", title_justify="left")
    for column in ("control", "dtype"):
        table.add_column(column)
    for column in ("has", "fitted", "tighter by"):
        table.add_column(column, justify="right")
    for fit in fits:
        tighter = "-" if fit.fitted is None else f"{fit.current / fit.fitted:.3g}"
        shown = "none proposed" if fit.fitted is None else f"{fit.fitted:.3g}"
        table.add_row(fit.operator, fit.dtype, f"{fit.current:g}", shown, tighter)
    console.print(table)
    table = Table(title="Scored by the largest error alone (95% intervals)", title_justify="left")
    for column in ("tolerances", "cases scored"):
        table.add_column(column)
    for column in ("recall, cases of faulty kernels", "false, cases of controls"):
        table.add_column(column, justify="right")
    for one in outcomes:
        fitted_on = "held out" if one.held_out else "those fitted to"
        where = "all" if one.way == AS_THEY_STAND else fitted_on
        table.add_row(one.way, where, ranged(one.recall), ranged(one.false))
    console.print(table)
