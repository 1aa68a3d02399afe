"""The terminal tables of ``kernelassay cost``."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from kernelassay.analysis.cost import CostReport


def print_cost(console: Console, report: CostReport, mutants: int | None = None) -> None:
    """Extent, stages, kinds, rank correlation and replacements of a campaign.

    With ``mutants``, also what so many of the same problems would take.
    """
    console.print(
        f"{report.problems} problems planned and {report.units} units measured on the"
        f" {report.machine.executor} executor; predicted by: {report.machine.provenance}",
        markup=False,
    )
    extent = report.extent
    console.print(
        f"{extent.mutants} mutants; {extent.cells} cells run, {extent.implied} implied by others",
        markup=False,
    )
    _stints(console, report, mutants)
    _stages(console, report)
    _kinds(console, report)
    if report.rank_correlation is None:
        console.print("rank correlation of predicted and measured seconds: too few units")
    else:
        console.print(
            f"rank correlation of predicted and measured seconds over {report.units} units:"
            f" {report.rank_correlation:.2f}"
        )
    if not report.replacements:
        console.print("no worker was replaced")
    for why, lost in report.replacements.items():
        console.print(
            f"workers replaced after {why}: {lost.count}, {lost.seconds:.1f} s to replace,"
            f" {lost.wasted:.1f} s wasted before",
            markup=False,
        )


def _stints(console: Console, report: CostReport, mutants: int | None) -> None:
    minutes = sum(stint.seconds for stint in report.stints) / 60
    devices = sum(stint.seconds * stint.devices for stint in report.stints) / 60
    lanes = sorted({stint.lanes for stint in report.stints})
    if report.stints:
        console.print(
            f"{minutes:.1f} minutes in {len(report.stints)} runs of"
            f" {', '.join(map(str, lanes))} lanes"
            + (f", {devices:.1f} GPU-minutes" if devices else ""),
            markup=False,
        )
    if mutants is not None:
        times = report.growth(mutants)
        whole = f", {times * minutes:.1f} minutes" if minutes else ""
        console.print(f"{mutants} mutants would take {times:.2f} times as long{whole}")


def _stages(console: Console, report: CostReport) -> None:
    table = Table(title="Seconds by stage, summed over lanes", title_justify="left")
    table.add_column("stage")
    for column in ("measured", "predicted"):
        table.add_column(column, justify="right")
    for name, stage in report.stages.items():
        predicted = "-" if stage.predicted is None else f"{stage.predicted:.1f}"
        table.add_row(name, f"{stage.measured:.1f}", predicted)
    console.print(table)


def _kinds(console: Console, report: CostReport) -> None:
    title = "Seconds by kind; off by a factor of (median and 90th percentile, either way)"
    table = Table(title=title, title_justify="left")
    table.add_column("kind")
    for column in ("count", "measured", "predicted", "median", "p90"):
        table.add_column(column, justify="right")
    for name, kind in report.kinds.items():
        table.add_row(
            name,
            str(kind.count),
            f"{kind.measured:.3g}",
            f"{kind.predicted:.3g}",
            f"{2**kind.median:.2f}",
            f"{2**kind.p90:.2f}",
        )
    console.print(table)
