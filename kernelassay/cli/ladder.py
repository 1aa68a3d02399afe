"""``kernelassay ladder``: what generated inputs kill of what a checker misses."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from kernelassay.cli.selection import (
    console,
    emit_json,
    json_option,
    problem_jobs_option,
    session_options,
)


@click.command()
@session_options
@click.option(
    "--rung",
    "rungs",
    multiple=True,
    metavar="NAME",
    help="A generator of inputs; may be repeated. one of r0, r1, r2, r3 (these three ask a"
    " language model), taxonomy, mosaic, search. Default: r0, taxonomy, search.",
)
@click.option(
    "--protocol",
    "name",
    metavar="NAME|FILE",
    default="kernelbench-v0.1",
    show_default=True,
    help="The protocol whose survivors are to be killed.",
)
@click.option(
    "--budget",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    metavar="N",
    help="At most N inputs of a problem from each rung.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    default=1,
    show_default=True,
    help="Seed of all rungs.",
)
@click.option(
    "--record",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the prompts and answers of a language model to files in DIR.",
)
@click.option(
    "--replay",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Take the answers that were recorded in DIR; no language model is asked.",
)
@click.option(
    "--extend",
    "extending",
    is_flag=True,
    help="Add the valid inputs to the session, and run all its candidates on them.",
)
@click.option(
    "--kernelbench",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The KernelBench checkout that the session's problems come from.",
)
@problem_jobs_option
@json_option
def ladder(
    sessions: tuple[Path, ...],
    rungs: tuple[str, ...],
    name: str,
    tolerance: float,
    partial: bool,
    budget: int,
    seed: int,
    record: Path | None,
    replay: Path | None,
    extending: bool,
    kernelbench: Path | None,
    jobs: int,
    as_json: bool,
) -> None:
    """Let generators of inputs, which know more from rung to rung, kill what a protocol misses.

    Each makes inputs for the problems of a SESSION, and the mutants that are witnessed there and
    that the protocol accepts run on them. An input on which correct kernels may fail kills nobody:
    what a checker rejects there is counted as a false kill.
    """
    from kernelassay.protocols import chosen
    from kernelassay.report.ladder import print_ladder
    from kernelassay.session import Session
    from kernelassay.synthesis.generate.chat import asked_by
    from kernelassay.synthesis.generate.experiment import experiment
    from kernelassay.synthesis.generate.extend import extend
    from kernelassay.synthesis.generate.ladder import Options
    from kernelassay.synthesis.generate.rungs import generators

    stores = [Session.open(root) for root in sessions]
    chosen_rungs = generators(rungs, asked_by(record, replay), stores[0].given)
    (protocol,) = chosen((name,)) or ()
    options = Options(protocol, tolerance, budget, seed, jobs)
    with Console(stderr=True).status("") as status:
        result = experiment(
            stores, chosen_rungs, options, kernelbench, status.update, partial=partial
        )
        added = extend(stores, result, kernelbench, jobs, status.update) if extending else {}
    for session, count in added.items():
        click.echo(f"{session}: {count} inputs added", err=True)
    if as_json:
        emit_json("ladder", result.to_json())
    else:
        print_ladder(console(), result)


COMMANDS = (ladder,)
