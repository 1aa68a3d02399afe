"""``kernelassay admit``: which problems get a substrate, and why others do not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from kernelassay.cli.selection import (
    Selection,
    console,
    emit_json,
    json_option,
    problem_jobs_option,
    problem_options,
    sample_option,
    style_option,
)
from kernelassay.inputs import BATTERIES, BRIEF_BATTERY, FULL_BATTERY, QUICK_BATTERY

if TYPE_CHECKING:
    from kernelassay.admission import Admission


@click.command()
@problem_options
@click.option("--shrink", is_flag=True, help="Scale foreign problems down to what a CPU can run.")
@click.option(
    "--battery",
    type=click.Choice(BATTERIES),
    default="brief",
    show_default=True,
    help=f"Inputs per problem: at most {BRIEF_BATTERY}, {QUICK_BATTERY} or {FULL_BATTERY}."
    " A run uses quick or full.",
)
@click.option(
    "--rewrites", is_flag=True, help="Also build and judge the benign rewrites, as a run does."
)
@style_option
@click.option("--mutants", is_flag=True, help="Also count the mutants, by family, style and rule.")
@sample_option
@click.option(
    "--session",
    type=click.Path(path_type=Path),
    help="Directory that keeps each problem's result; the same command takes up from there.",
)
@problem_jobs_option
@json_option
def admit(
    names: tuple[str, ...],
    kernelbench: Path | None,
    level: int | None,
    files: tuple[Path, ...],
    shrink: bool,
    battery: str,
    rewrites: bool,
    styles: tuple[str, ...],
    mutants: bool,
    sample: int | None,
    session: Path | None,
    jobs: int,
    as_json: bool,
) -> None:
    """Report, per problem, its kernels and their precision, or why it is not admitted.

    Every problem is traced, lowered, built and run on valid inputs against float64, as for a run,
    but no mutant is run. The exit code does not depend on what is admitted.
    """
    from kernelassay.admission import (
        AdmissionOptions,
        admissions,
        mutant_totals,
        reason_counts,
    )
    from kernelassay.plan import GateOptions
    from kernelassay.session import user_cache
    from kernelassay.styles import choose

    problems = Selection(names, kernelbench, level, files).problems()
    gating = GateOptions(battery, None, rewrites, styles=choose(styles))
    options = AdmissionOptions(shrink, gating, jobs, mutants, sample)
    found: dict[str, Admission] = {}
    for done in admissions(problems, options, user_cache(), session):
        found[done.problem] = done
        click.echo(f"[{len(found)}/{len(problems)}] {_line(done)}", err=True)
    ordered = [found[problem.id] for problem in problems]
    summary = {
        "admitted": sum(not done.refused for done in ordered),
        "problems": len(ordered),
        "reasons": reason_counts(ordered),
    }
    if mutants:
        summary["mutants"] = {
            by: mutant_totals(ordered, by) for by in ("family", "style", "rule", "problem")
        }
    if as_json:
        gate = {"battery": battery, "rewrites": rewrites, "shrink": shrink}
        records = [done.to_json() for done in ordered]
        emit_json("admission", {**summary, "options": gate, "results": records})
    else:
        _print(ordered, summary)


def _line(done: Admission) -> str:
    if done.refused:
        reason = done.refused.splitlines()[0]
        return f"{done.problem}: not admitted ({done.stage}): {reason} ({done.seconds:.0f} s)"
    return (
        f"{done.problem}: {len(done.kernels)} kernels, worst {done.worst_error:.1e} on"
        f" {done.worst_input}, {done.valid} of {done.inputs} inputs valid ({done.seconds:.0f} s)"
    )


def _print(ordered: Sequence[Admission], summary: dict[str, Any]) -> None:
    out = console()
    table = Table("problem", "kernels (styles)", "ops", "inputs", "worst", "on", "scaled")
    for done in ordered:
        if done.refused:
            continue
        table.add_row(
            done.problem,
            ", ".join(f"{k.template} ({len(k.styles)})" for k in done.kernels),
            str(len(done.ops)),
            f"{done.valid} of {done.inputs}",
            f"{done.worst_error:.1e}",
            done.worst_input,
            _scaling(done),
        )
    if table.row_count:
        out.print(table)
    refused = [done for done in ordered if done.refused]
    if refused:
        reasons = Table("problem", "stage", "not admitted because")
        for done in refused:
            reasons.add_row(done.problem, done.stage, done.refused)
        out.print(reasons)
        counts = Table("problems", "reason")
        for reason, count in summary["reasons"].items():
            counts.add_row(str(count), reason)
        out.print(counts)
    if "mutants" in summary:
        _print_mutants(summary["mutants"])
    out.print(f"admitted: {summary['admitted']} of {summary['problems']} problems")


def _print_mutants(totals: dict[str, dict[str, dict[str, int]]]) -> None:
    from kernelassay.compile.classify import STATUSES
    from kernelassay.mutation.catalogue import RULES

    out = console()
    for by in ("family", "style"):
        table = Table(by, "generated", *STATUSES)
        table.add_section()
        for name, counts in totals[by].items():
            table.add_row(name, str(sum(counts.values())), *(str(counts[s]) for s in STATUSES))
        out.print(table)
    silent = [rule.id for rule in RULES if rule.id not in totals["rule"]]
    everything = sum(sum(counts.values()) for counts in totals["family"].values())
    distinct = sum(counts["distinct"] for counts in totals["family"].values())
    out.print(f"mutants: {distinct} distinct of {everything}, on {len(totals['problem'])} problems")
    out.print(f"rules that never fired ({len(silent)}): {', '.join(silent) or 'none'}")


def _scaling(done: Admission) -> str:
    if done.shrink is None:
        return ""
    parts = [f"{size.name} {size.before}->{size.after}" for size in done.shrink.sizes]
    return ", ".join([*parts, *done.shrink.notes])


COMMANDS = (admit,)
