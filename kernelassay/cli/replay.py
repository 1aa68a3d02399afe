"""``kernelassay replay``: run one cell again and compare it byte for byte."""

from __future__ import annotations

from pathlib import Path

import click

from kernelassay.cli.selection import emit_json, json_option
from kernelassay.errors import ControlError


@click.command()
@click.argument("session", type=click.Path(path_type=Path))
@click.argument("candidate", metavar="MUTANT")
@click.argument("input_id", metavar="INPUT")
@click.option("--problem", help="Problem id, where the candidate's name is not unique.")
@click.option(
    "--kernelbench",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The checkout the session's problems came from.",
)
@json_option
def replay(
    session: Path,
    candidate: str,
    input_id: str,
    problem: str | None,
    kernelbench: Path | None,
    as_json: bool,
) -> None:
    """Run one cell of a SESSION again; its output digest and verdicts must be the stored ones.

    A cell that a lazy run left out is run, and shown.
    """
    from kernelassay.replay import replay_cell
    from kernelassay.session import Session

    result = replay_cell(Session.open(session), candidate, input_id, problem, kernelbench)
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


COMMANDS = (replay,)
