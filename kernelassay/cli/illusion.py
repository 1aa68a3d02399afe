"""``kernelassay illusion``: seeded fuzzing of single operators, its corpus, strategies, mutants."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from kernelassay.cli.selection import NumberRange, console, emit_json, json_option
from kernelassay.errors import NothingToTestError

if TYPE_CHECKING:
    from kernelassay.illusion.oracle import Rule

SESSION = Path("sessions/illusion")


@click.group()
def illusion() -> None:
    """Fuzz single operators with seeded cases, after "The Correctness Illusion"."""


_kernels = click.argument("kernels", nargs=-1, metavar="[KERNEL]...")
_op_files = click.option(
    "--op",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="An operator of your own, as a TOML file; may be repeated.",
)
_session = click.argument(
    "session", default=SESSION, type=click.Path(file_okay=False, path_type=Path)
)
_jobs = click.option(
    "--jobs",
    type=click.IntRange(1),
    default=lambda: os.cpu_count() or 1,
    show_default="the number of cores",
    help="Processes at the same time.",
)


@illusion.command()
@_kernels
@_op_files
@json_option
def corpus(kernels: tuple[str, ...], files: tuple[Path, ...], as_json: bool) -> None:
    """List the corpus: correct kernels, and faulty ones that are one edit away.

    KERNEL names may be globs.
    """
    from kernelassay.illusion.selection import selected
    from kernelassay.report.illusion import print_corpus

    ops = selected(kernels, files)
    if as_json:
        data = [{**asdict(op), "schema": op.schema.record()} for op in ops]
        emit_json("illusion-corpus", data)
    else:
        print_corpus(console(), ops)


@illusion.command()
@_kernels
@_op_files
@click.option("--rules", "patterns", multiple=True, help="Rule id, glob or family; repeatable.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="At most N mutants per kernel.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file to write them to, for `illusion run --mutants`.",
)
@_jobs
def mutants(
    kernels: tuple[str, ...],
    files: tuple[Path, ...],
    patterns: tuple[str, ...],
    sample: int | None,
    out: Path,
    jobs: int,
) -> None:
    """Mutate the correct Triton kernels; tell equal ones apart by their compiled code. No GPU.

    KERNEL names may be globs. The file has the kernels that are done so far.
    """
    from kernelassay.illusion.population import populate, write
    from kernelassay.illusion.selection import selected

    chosen = selected(kernels, files)
    ops = [op for op in chosen if op.language == "triton" and op.fault is None]
    if not ops:
        raise NothingToTestError(
            "no correct kernel in Triton is selected",
            where=", ".join(op.name for op in chosen),
            hint="list the kernels: kernelassay illusion corpus",
        )
    found = {}
    for op in ops:
        found[op.name] = populate(op, patterns, sample, jobs)
        write(out, found)  # an interrupt keeps what is done
        click.echo(f"{op.name}: {found[op.name].in_words()}", err=True)


@illusion.command()
@_kernels
@_op_files
@click.option(
    "--session",
    type=click.Path(file_okay=False, path_type=Path),
    default=SESSION,
    show_default=True,
    help="Directory to fill; the same command resumes it.",
)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME|all|published",
    help="How cases are drawn; may be repeated. Default: default.",
)
@click.option(
    "--cases",
    "count",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="Cases of each strategy and kernel.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="The experiment's seed; each strategy adds what its name gives.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where kernels run: on the CPU Triton's interpreter and our CUDA executor.",
)
@click.option(
    "--mutants",
    "population",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Run these mutants, too (`illusion mutants` writes them).",
)
@click.option(
    "--seconds",
    type=NumberRange(0.1, 86_400.0),
    default=20.0,
    show_default=True,
    help="Time that one execution has.",
)
@_jobs
def run(
    kernels: tuple[str, ...],
    files: tuple[Path, ...],
    session: Path,
    strategies: tuple[str, ...],
    count: int,
    seed: int,
    device: str,
    population: Path | None,
    seconds: float,
    jobs: int,
) -> None:
    """Run kernels on seeded cases; keep how far each output strays.

    KERNEL names may be globs; without any, the published corpus runs.
    """
    from rich.console import Console
    from rich.progress import Progress

    from kernelassay.illusion import campaign
    from kernelassay.illusion.population import read
    from kernelassay.illusion.selection import groups, selected
    from kernelassay.illusion.strategies import named

    made = groups(selected(kernels, files), read(population) if population else {})
    where = next(one for one in get_args(campaign.Where) if one == device)
    plan = campaign.Plan(made, named(strategies), seed, count, where, seconds)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def done(unit: campaign.Unit, finished: int, total: int) -> None:
            progress.update(task, total=total, completed=finished, description=unit.op.name)

        campaign.run(plan, session, jobs, done)
    click.echo(f"done: `kernelassay illusion score {session}` tells what they show", err=True)


def _rule_options(command: click.decorators.FC) -> click.decorators.FC:
    for option in (
        click.option(
            "--nonfinite",
            type=click.Choice(["strict", "matched", "ignored"]),
            default="strict",
            show_default=True,
            help="What non-finite outputs count: any is wrong; right where the reference has the"
            " same; nothing.",
        ),
        click.option(
            "--reference",
            type=click.Choice(["rounded", "exact"]),
            default="rounded",
            show_default=True,
            help="The float64 reference rounded to the dtype under test, or as it is.",
        ),
        click.option(
            "--scale",
            type=NumberRange(0.0, min_open=True),
            default=1.0,
            show_default=True,
            help="Multiplies every operator's tolerance.",
        ),
    ):
        command = option(command)
    return command


def _rule(nonfinite: str, reference: str, scale: float) -> Rule:
    from kernelassay.illusion import oracle
    from kernelassay.oracle import Nonfinite

    return oracle.Rule(
        nonfinite=next(one for one in get_args(Nonfinite) if one == nonfinite),
        reference=next(one for one in get_args(oracle.Reference) if one == reference),
        scale=scale,
    )


@illusion.command()
@_session
@_rule_options
@click.option(
    "--budget",
    "budgets",
    type=click.IntRange(1),
    multiple=True,
    help="Score the first N cases of strategies on mutants; may be repeated. Default: 1, 2, 4, 8.",
)
@click.option("--partial", is_flag=True, help="Leave out operators whose trials are not finished.")
@json_option
def score(
    session: Path,
    nonfinite: str,
    reference: str,
    scale: float,
    budgets: tuple[int, ...],
    partial: bool,
    as_json: bool,
) -> None:
    """Who fails, what strategies detect, and what they reject wrongly."""
    from kernelassay.illusion.scores import summary
    from kernelassay.illusion.trials import Trials
    from kernelassay.report.illusion import print_summary

    rule = _rule(nonfinite, reference, scale)
    found = summary(Trials.open(session), rule, budgets or (1, 2, 4, 8), partial=partial)
    if as_json:
        emit_json("illusion-score", found.to_json())
    else:
        print_summary(console(), found)


@illusion.command()
@_session
@json_option
def calibrate(session: Path, as_json: bool) -> None:
    """Fit tolerances to the controls, in sample and held out, and score them."""
    from kernelassay.illusion.calibrate import PUBLISHED, WAYS, fitted, scored
    from kernelassay.illusion.grids import grids
    from kernelassay.illusion.scores import require_controls
    from kernelassay.illusion.trials import Trials
    from kernelassay.report.illusion import print_calibration

    made = grids(Trials.open(session))
    require_controls(made)
    outcomes = [scored(made, None, held_out=False)]
    outcomes += [scored(made, way, held_out=held) for way in WAYS for held in (False, True)]
    fits = fitted(made, PUBLISHED)
    if as_json:
        data = {"fitted": [asdict(x) for x in fits], "scored": [asdict(x) for x in outcomes]}
        emit_json("illusion-calibration", data)
    else:
        print_calibration(console(), fits, outcomes)


@illusion.command()
@_session
@_rule_options
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Directory for the bundles.",
)
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="At most N failing cases of a kernel."
)
def bundle(
    session: Path, nonfinite: str, reference: str, scale: float, out: Path, limit: int | None
) -> None:
    """Write a bundle for every failing case of the corpus, which `kernelassay replay` takes."""
    from kernelassay.illusion.bundles import write_failures
    from kernelassay.illusion.trials import Trials

    written = write_failures(Trials.open(session), _rule(nonfinite, reference, scale), out, limit)
    click.echo(f"{written} bundles in {out}; `kernelassay replay {out}` runs them again")


@illusion.command()
@click.argument("bundle_file", type=click.Path(path_type=Path), metavar="BUNDLE")
@click.option(
    "--executions",
    type=click.IntRange(3),
    default=200,
    show_default=True,
    help="Run the kernel at most so often.",
)
@click.option("--schema-sizes", is_flag=True, help="Try no size but the schema's own.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Where to write the bundle of the smallest case: a file or a directory.",
)
@json_option
def shrink(
    bundle_file: Path, executions: int, schema_sizes: bool, out: Path | None, as_json: bool
) -> None:
    """Run the kernel of a BUNDLE towards the smallest case on which it fails in the same way."""
    from rich.console import Console

    from kernelassay.illusion.benches import bench_for
    from kernelassay.illusion.bundle import write
    from kernelassay.illusion.bundle_file import read
    from kernelassay.illusion.shrink import shrink as shrunk

    found = read(bundle_file)
    bench = bench_for(found.language, found.device)
    try:
        with Console(stderr=True).status("") as status:
            smallest = shrunk(
                found.examiner,
                bench,
                found.case,
                device=found.device,
                inputs=found.inputs() if found.explicit else None,
                executions=executions,
                any_size=not schema_sizes,
                progress=status.update,
            )
    finally:
        bench.close()
    if as_json:
        emit_json("illusion-shrunk", smallest.to_json())
    else:
        click.echo(smallest.describe())
    if out:  # after the rest: what was found must not be lost if it cannot be written
        click.echo(f"written to {write(out, smallest.bundle)}", err=True)


COMMANDS = (illusion,)
