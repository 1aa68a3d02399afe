"""``kernelassay check``: judge one candidate kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from kernelassay.cli.executor import chosen_executor
from kernelassay.cli.selection import (
    NumberRange,
    Selection,
    console,
    emit_json,
    json_option,
)
from kernelassay.errors import ControlError, UsageError

if TYPE_CHECKING:
    from kernelassay.check.replay import Recorded
    from kernelassay.check.verdict import Verdict
    from kernelassay.problem import Problem

REJECTED = 2


@click.command()
@click.argument(
    "candidate", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--problem",
    "name",
    metavar="NAME|FILE",
    help="The problem it claims to compute: one of the suite or of --kernelbench, or a file.",
)
@click.option(
    "--kernelbench",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Look for the problem in a KernelBench checkout.",
)
@click.option("--level", type=click.IntRange(1, 4), help="KernelBench level.")
@click.option("--shrink", is_flag=True, help="Scale the problem down to what a CPU can run.")
@click.option(
    "--suite",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Judge on the inputs of this JSON file instead of a battery.",
)
@click.option(
    "--battery",
    type=click.Choice(["brief", "quick", "full"]),
    default="quick",
    show_default=True,
    help="How many inputs of our own.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    show_default="fresh",
    help="Seed of the hidden inputs; the verdict names it.",
)
@click.option(
    "--fixed-shapes", is_flag=True, help="Ask for the problem's own sizes alone, as KernelBench."
)
@click.option(
    "--tolerance",
    type=NumberRange(0.0, min_open=True),
    show_default="by dtype, and by how far correct runs stray",
    help="Tolerance of every input instead of its own.",
)
@click.option(
    "--executor",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where the candidate runs.",
)
@click.option(
    "--seconds",
    type=NumberRange(0.0, min_open=True),
    default=30.0,
    show_default=True,
    help="Limit for one run of the candidate.",
)
@click.option(
    "--build-seconds",
    type=NumberRange(0.0, min_open=True),
    default=300.0,
    show_default=True,
    help="Limit for importing the candidate, and for building it.",
)
@click.option(
    "--memory",
    type=click.IntRange(64),
    default=4096,
    show_default=True,
    help="Limit of the candidate's memory, in MB.",
)
@click.option(
    "--replay-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write all that is needed to run this check again.",
)
@click.option(
    "--replay",
    "replayed",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run the check of a replay file again, and say whether the verdict is the same.",
)
@json_option
@click.pass_context
def check(
    context: click.Context,
    candidate: Path | None,
    name: str | None,
    kernelbench: Path | None,
    level: int | None,
    shrink: bool,
    suite: Path | None,
    battery: str,
    seed: int | None,
    fixed_shapes: bool,
    tolerance: float | None,
    executor: str,
    seconds: float,
    build_seconds: float,
    memory: int,
    replay_file: Path | None,
    replayed: Path | None,
    as_json: bool,
) -> None:
    """Judge a CANDIDATE: a ModelNew file, or a .cu file with our header.

    It runs in a process of its own that never sees the reference. Exit code 0: accepted, 2:
    rejected, 3: the reference itself is rejected or a replay differs, 4: no input can judge.
    """
    from kernelassay.check import CheckOptions, replay
    from kernelassay.check.draws import fresh_seed
    from kernelassay.check.replay import Recorded
    from kernelassay.check.subject import Seconds
    from kernelassay.check.suites import read_suite
    from kernelassay.execute.confinement import Limits

    if replayed is not None:
        if candidate is not None or name is not None:
            raise UsageError(
                "--replay names the candidate and the problem itself", hint="leave both out"
            )
        recorded = replay.read(replayed, kernelbench)
    else:
        if candidate is None or name is None:
            raise UsageError(
                "needs a candidate and its problem",
                hint="kernelassay check my_kernel.py --problem suite/softmax_rows",
            )
        chosen_executor(executor, None, False, None)
        problem = _problem(name, kernelbench, level, shrink)
        options = CheckOptions(
            seed=fresh_seed() if seed is None else seed,
            battery=battery,
            given=None if suite is None else read_suite(suite, problem),
            shapes=not fixed_shapes,
            tolerance=tolerance,
            device=executor,
            limits=Limits(memory_bytes=memory << 20, reserves_space=executor == "cuda"),
            seconds=Seconds(build_seconds, seconds),
        )
        recorded = Recorded.of(candidate, problem, options)
    with Console(stderr=True).status("") as status:
        verdict = replay.judge(recorded, status.update)
    if replay_file is not None:
        replay.write(replay_file, recorded, verdict)
    tell(recorded, verdict, replayed, as_json)
    if not verdict.accepted:
        context.exit(REJECTED)


def tell(recorded: Recorded, verdict: Verdict, replayed: Path | None, as_json: bool) -> None:
    """Print a verdict; raise :class:`ControlError` if it differs from that of the replay file."""
    from kernelassay.check.replay import differences
    from kernelassay.report.check import print_verdict

    differing = differences(recorded, verdict)
    if as_json:
        data = verdict.to_json()
        if replayed is not None:
            data["differences"] = list(differing)
        emit_json("check", data)
    else:
        print_verdict(console(), verdict)
        if replayed is not None and not differing:
            click.echo("replay: the same verdict")
    if differing:
        raise ControlError(
            f"the replay differs in {', '.join(differing)}",
            where=str(replayed),
            hint="is the candidate not deterministic, or this another machine or torch version?",
        )


def _problem(name: str, kernelbench: Path | None, level: int | None, shrink: bool) -> Problem:
    path = Path(name)
    if path.is_file():
        selected = Selection((), None, level, (path,)).problems()
    elif path.suffix == ".py" and kernelbench is None:
        raise UsageError("no such file", where=name, hint="or name a problem, as suite/relu")
    else:
        selected = Selection((name,), kernelbench, level, ()).problems()
    if len(selected) != 1:
        raise UsageError(
            f"{name!r} matches {len(selected)} problems",
            hint="name one: " + ", ".join(problem.id for problem in selected[:3]),
        )
    problem = selected[0]
    if shrink:
        from kernelassay.shrink import shrink_limited

        report = shrink_limited(problem)
        if report.reason:
            raise UsageError(f"cannot be scaled down: {report.reason}", where=problem.id)
        problem = report.problem
    return problem


COMMANDS = (check,)
