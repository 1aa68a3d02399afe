"""``kernelassay replay``: run what was stored again and compare it byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelassay.cli.selection import console, emit_json, json_option
from kernelassay.errors import ControlError, NothingToTestError, ReplayError, UsageError
from kernelassay.illusion.benches import DEVICES

if TYPE_CHECKING:
    from kernelassay.illusion.replay import Replayed
    from kernelassay.session import Session


@click.command()
@click.argument("target", type=click.Path(path_type=Path), metavar="SESSION|FILE|DIR")
@click.argument("candidate", metavar="[MUTANT]", required=False)
@click.argument("input_id", metavar="[INPUT]", required=False)
@click.option("--problem", help="Problem id, where the candidate's name is not unique.")
@click.option(
    "--kernelbench",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The checkout the session's problems came from.",
)
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    help="Run a bundle's kernel here, not where it failed; the verdict alone is compared then.",
)
@json_option
def replay(
    target: Path,
    candidate: str | None,
    input_id: str | None,
    problem: str | None,
    kernelbench: Path | None,
    device: str | None,
    as_json: bool,
) -> None:
    """Run something again; what comes of it must be what was stored.

    Of a SESSION it is one cell, of a MUTANT on an INPUT: its output digest and verdicts must be the
    same. A cell that a lazy run left out is run, and shown. A FILE is a bundle of the seeded fuzz,
    or what `kernelassay check --replay-file` wrote; of a DIR it is every bundle in it. Of a bundle,
    the inputs, the output's bytes and the verdict must be the same; exit code 2: they are not.
    """
    from kernelassay.session import Session

    of_a_cell = candidate is not None or problem is not None
    if of_a_cell and device is not None:
        raise UsageError("--device is for bundles", hint="a cell runs on its session's executor")
    if of_a_cell or (target / "manifest.json").exists():
        store = Session.open(target)
        if candidate is None or input_id is None:
            raise UsageError(
                "needs a mutant and an input",
                where=str(target),
                hint="kernelassay replay SESSION MUTANT INPUT; `explain` names both",
            )
        _cell(store, candidate, input_id, problem, kernelbench, as_json)
    elif target.is_file() and _is_check(target):
        if device is not None:
            raise UsageError("--device is for bundles", hint="a check runs where it ran")
        _check(target, kernelbench, as_json)
    else:
        _bundles(target, device, as_json)


def _cell(
    session: Session,
    candidate: str,
    input_id: str,
    problem: str | None,
    kernelbench: Path | None,
    as_json: bool,
) -> None:
    from kernelassay.replay import replay_cell

    result = replay_cell(session, candidate, input_id, problem, kernelbench)
    if as_json:
        emit_json("replay", result.to_json())
    else:
        click.echo(result.describe())
    if result.differences:
        raise ControlError(
            f"the replay differs from the stored cell in {', '.join(result.differences)}",
            where=f"{result.problem} {candidate} {input_id}",
            hint="is this another machine, compiler or torch version than the session's?",
        )


def _is_check(path: Path) -> bool:
    from kernelassay.check.replay import SCHEMA
    from kernelassay.illusion.bundle_file import parsed

    return parsed(path).get("schema") == SCHEMA


def _check(path: Path, kernelbench: Path | None, as_json: bool) -> None:
    from kernelassay.check import replay as checks
    from kernelassay.cli.check import tell

    recorded = checks.read(path, kernelbench)
    tell(recorded, checks.judge(recorded), path, as_json)


def _bundles(target: Path, device: str | None, as_json: bool) -> None:
    from kernelassay.illusion import benches
    from kernelassay.illusion.bundle_file import read
    from kernelassay.illusion.replay import replay as replay_bundle

    paths = sorted(target.glob("*.json")) if target.is_dir() else [target]
    if not paths:
        raise NothingToTestError(
            "is neither a session nor a directory of bundles",
            where=str(target),
            hint="write bundles: kernelassay illusion bundle SESSION --out DIR",
        )
    bundles = {path: read(path) for path in paths}
    replayed: dict[Path, Replayed] = {}
    for path, bundle in bundles.items():
        used = device or bundle.device
        bench = benches.bench_for(bundle.language, used)
        try:
            replayed[path] = replay_bundle(bundle, bench, used)
        finally:
            bench.close()
        if not as_json:
            console().print(replayed[path].describe(), soft_wrap=True)
    if as_json:
        found = [{"file": str(path), **one.to_json()} for path, one in replayed.items()]
        emit_json("replay-bundles", {"bundles": found})
    differing = {path: one for path, one in replayed.items() if one.differences}
    if len(replayed) > 1 and not as_json:
        in_bytes = sum("bytes" in one.compared for one in replayed.values())
        click.echo(
            f"{len(replayed)} bundles replayed, {in_bytes} of them compared to the byte:"
            f" {len(replayed) - len(differing)} the same, {len(differing)} differ"
        )
    if differing:
        path, first = next(iter(differing.items()))
        moved = ", ".join(first.moved)
        raise ReplayError(
            f"{len(differing)} of {len(replayed)} replays differ, the first in "
            f"{', '.join(first.differences)}",
            where=str(path),
            hint=f"other than then: {moved}" if moved else "is the kernel not deterministic?",
        )


COMMANDS = (replay,)
