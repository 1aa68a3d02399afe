"""``kernelassay lint``: what makes a problem unable to referee, before anything is scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from kernelassay.cli.selection import Selection, console, emit_json, json_option, problem_options
from kernelassay.errors import GateError, NothingToTestError, ProblemError
from kernelassay.problem import Problem, read_problem

if TYPE_CHECKING:
    from kernelassay.lint import Finding, Options, Report

_NAMES_SHOWN = 4


@click.command()
@problem_options
@click.option("--shrink", is_flag=True, help="Lint at sizes scaled down to what a CPU can run.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where the references run.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Problems linted at the same time, each in a worker process.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1.0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of a problem's worker.",
)
@click.option(
    "--memory",
    type=click.FloatRange(0.5),
    default=8.0,
    show_default=True,
    metavar="GB",
    help="Main memory limit of a problem's worker.",
)
@click.option(
    "--severity",
    type=click.Choice(["fatal", "weak"]),
    default="weak",
    show_default=True,
    help="The least severity to show and count.",
)
@click.option(
    "--strict", is_flag=True, help="Exit with 2 if there is a finding or an unjudged problem."
)
@json_option
def lint(
    names: tuple[str, ...],
    kernelbench: Path | None,
    level: int | None,
    files: tuple[Path, ...],
    shrink: bool,
    device: str,
    jobs: int,
    timeout: float,
    memory: float,
    severity: str,
    strict: bool,
    as_json: bool,
) -> None:
    """Find what makes problems unable to referee kernels.

    Runs each reference in a limited worker process and prints findings with the numbers that prove
    them. A fatal finding: under no protocol does the problem tell right from wrong. A weak one
    affects one protocol, or faults of one kind.
    """
    from kernelassay.lint import Options
    from kernelassay.lint import lint as lint_all

    problems, unreadable = _selected(names, kernelbench, level, files)
    if not problems and not unreadable:
        raise NothingToTestError("no problem is selected", hint="list them: kernelassay problems")
    options = Options(shrink, device, timeout, int(memory * (1 << 30)))
    progress = _Progress(len(problems))
    reports = [*unreadable, *lint_all(problems, options, jobs, progress.report)]
    if severity == "fatal":
        reports = [_only_fatal(report) for report in reports]
    if as_json:
        emit_json("lint", _document(reports, options))
    else:
        _print(reports, options)
    failing = [r for r in reports if r.findings or r.unjudged]
    if strict and failing:
        raise GateError(f"{len(failing)} of {len(reports)} problems have findings or are unjudged")


def _selected(
    names: tuple[str, ...], kernelbench: Path | None, level: int | None, files: tuple[Path, ...]
) -> tuple[tuple[Problem, ...], list[Report]]:
    """The problems, and reports of the files that are none."""
    from kernelassay.lint import Finding, Report

    readable, unreadable = [], []
    for path in files:
        try:
            read_problem(path)
            readable.append(path)
        except ProblemError as error:
            finding = Finding("not-loadable", "fatal", error.what)
            unreadable.append(Report(f"file/{path.stem}", "", (finding,)))
    if unreadable and not readable and kernelbench is None:
        return (), unreadable
    return Selection(names, kernelbench, level, tuple(readable)).problems(), unreadable


def _only_fatal(report: Report) -> Report:
    from dataclasses import replace

    return replace(report, findings=tuple(f for f in report.findings if f.severity == "fatal"))


class _Progress:
    """One line on standard error per finished problem."""

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False)
        self._total = total
        self._done = 0

    def report(self, report: Report) -> None:
        self._done += 1
        fatal = dict.fromkeys(f.kind for f in report.findings if f.severity == "fatal")
        kinds = ", ".join(fatal)
        weak = sum(f.severity == "weak" for f in report.findings)
        state = report.unjudged or f"{kinds or 'nothing fatal'}, {weak} weak"
        self._console.print(
            f"[{self._done}/{self._total}] {report.problem}: {state} ({report.seconds:.0f} s)",
            soft_wrap=True,
        )


def _counts(reports: Sequence[Report]) -> dict[str, dict[str, int]]:
    """Problems with findings, by severity and kind."""
    counts: dict[str, Counter[str]] = {"fatal": Counter(), "weak": Counter()}
    for report in reports:
        for severity, kind in {(f.severity, f.kind) for f in report.findings}:
            counts[severity][kind] += 1
    return {severity: dict(sorted(kinds.items())) for severity, kinds in counts.items()}


def _document(reports: Sequence[Report], options: Options) -> dict[str, Any]:
    import torch

    return {
        "device": options.device,
        "torch": torch.__version__,
        "tf32": {
            "cudnn": torch.backends.cudnn.allow_tf32,
            "matmul": torch.backends.cuda.matmul.allow_tf32,
        },
        "limits": {"seconds": options.seconds, "memory_bytes": options.memory_bytes},
        "counts": _counts(reports),
        "problems": [report.to_json() for report in reports],
    }


def _print(reports: Sequence[Report], options: Options) -> None:
    from kernelassay.lint import KINDS

    out = console()
    for report in reports:
        _print_report(out, report)
    fatal = [r for r in reports if any(f.severity == "fatal" for f in r.findings)]
    weak = [r for r in reports if r.findings and r not in fatal]
    unjudged = [r for r in reports if r.unjudged]
    partly = sum(bool(r.skipped) and not r.unjudged for r in reports)
    clean = len(reports) - len(fatal) - len(weak) - len(unjudged)
    shrunk = sum(r.shapes == "shrunk" for r in reports)
    table = Table("severity", "finding", "problems", "meaning")
    for severity, kinds in _counts(reports).items():
        for kind, count in kinds.items():
            table.add_row(severity, kind, str(count), KINDS[kind])
    if table.row_count:
        out.print(table)
    out.print(
        f"{len(reports)} problems on {options.device}, {shrunk} of them shrunk: {len(fatal)} with a"
        f" fatal finding, {len(weak)} with weak ones only, {clean} without,"
        f" {len(unjudged)} unjudged; {partly} with a check that was not made"
    )


def _print_report(out: Console, report: Report) -> None:
    if not (report.findings or report.unjudged or report.skipped):
        return
    sizes = ", ".join(f"{name}={value}" for name, value in report.shrunk)
    shape = f"shrunk: {sizes}" if report.shrunk else "official shape"
    note = f"; {report.note}" if report.note else ""
    out.print(f"{report.problem} ({shape}{note})", soft_wrap=True)
    for severity, kind, text in _lines(report):
        out.print(f"  {severity:5}  {kind:20} {text}", soft_wrap=True)
    for skipped in report.skipped:
        out.print(f"  not checked: {skipped.check}: {skipped.reason}", soft_wrap=True)
    if report.unjudged:
        out.print(f"  unjudged: {report.unjudged}", soft_wrap=True)


def _lines(report: Report) -> Iterator[tuple[str, str, str]]:
    """Severity, kind and text of each finding; one line for all parameters of a kind."""
    parameters: dict[tuple[str, str], list[Finding]] = {}
    for finding in report.findings:
        key: tuple[str, str] = (finding.severity, finding.kind)
        if "parameter" in finding.numbers:
            parameters.setdefault(key, []).append(finding)
        else:
            yield *key, finding.what
    for (severity, kind), found in parameters.items():
        names = [str(finding.numbers["parameter"]) for finding in found[1:]]
        rest = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
        yield (
            severity,
            kind,
            found[0].what + (f"; likewise {len(names)} more: {rest}" if names else ""),
        )


COMMANDS = (lint,)
