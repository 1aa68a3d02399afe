"""``kernelassay audit``: scores from a session."""

from __future__ import annotations

from pathlib import Path

import click

from kernelassay.cli.selection import (
    NumberRange,
    console,
    emit_json,
    json_option,
    protocol_option,
    session_options,
)
from kernelassay.errors import GateError


@click.command()
@session_options
@protocol_option(
    "may be repeated; all: every known one that it can score. Default: those it was run for."
)
@click.option(
    "--fail-under",
    type=NumberRange(0.0, 1.0),
    help="Exit with 2 if a detected share is lower.",
)
@json_option
def audit(
    sessions: tuple[Path, ...],
    names: tuple[str, ...],
    tolerance: float,
    partial: bool,
    fail_under: float | None,
    as_json: bool,
) -> None:
    """Score protocols on the kill matrix of a SESSION directory.

    Several sessions of one campaign, run with the same options on other
    problems, are scored together.
    """
    from kernelassay.analysis.audit import audit_sessions
    from kernelassay.protocols import ALL, chosen
    from kernelassay.report.tables import print_audit
    from kernelassay.session import Session, write_whole

    stores = [Session.open(root) for root in sessions]
    result = audit_sessions(stores, chosen(names), tolerance, partial=partial, lenient=ALL in names)
    if as_json:
        emit_json("audit", result.to_json())
    else:
        print_audit(console(), result)
    if not as_json and len(sessions) == 1:
        import json

        path = sessions[0] / "audit.json"
        write_whole(path, (json.dumps(result.to_json(), indent=1, sort_keys=True) + "\n").encode())
        click.echo(f"written to {path}")
    if fail_under is not None:
        for score in result.scores:
            if score.originals.count:
                raise GateError(
                    f"{score.protocol} rejects {score.originals.count} of"
                    f" {score.originals.total} correct kernels under mutation: what it detects"
                    " says nothing",
                    where=result.session,
                )
            rate = score.detection.rate
            if rate is None or rate < fail_under:
                shown = "nothing" if rate is None else f"{rate:.4f}"
                raise GateError(
                    f"{score.protocol} detects {shown}, under {fail_under}", where=result.session
                )


COMMANDS = (audit,)
