"""``kernelassay explain`` and ``kernelassay anatomy``: why mutants are missed."""

from __future__ import annotations

from pathlib import Path

import click

from kernelassay.cli.selection import (
    console,
    emit_json,
    json_option,
    protocol_option,
    session_options,
)


@click.command()
@click.argument("mutant")
@session_options
@protocol_option("may be repeated. Default: those the session was run for.")
@json_option
def explain(
    mutant: str,
    sessions: tuple[Path, ...],
    tolerance: float,
    partial: bool,
    names: tuple[str, ...],
    as_json: bool,
) -> None:
    """Tell all that a SESSION knows of one MUTANT, named by its id or how that begins.

    Its diff, the bug it stands for, what every protocol makes of it and by what
    margin, which inputs kill it, and the cheapest that a protocol lacks.
    """
    from kernelassay.analysis.explain import explain as analyse
    from kernelassay.protocols import chosen
    from kernelassay.report.explain import print_explanation
    from kernelassay.session import Session

    stores = [Session.open(root) for root in sessions]
    result = analyse(stores, mutant, tolerance, chosen(names), partial=partial)
    if as_json:
        emit_json("explain", result.to_json())
    else:
        print_explanation(console(), result)


@click.command()
@session_options
@json_option
def anatomy(sessions: tuple[Path, ...], tolerance: float, partial: bool, as_json: bool) -> None:
    """Take the witnessed mutants of a SESSION apart.

    Which protocols miss which of them together, which group of inputs alone
    kills them, and which are minimal: no mutant is harder to kill. The last two
    need a session with whole rows (`run --cells rows`).
    """
    from kernelassay.analysis.anatomy import anatomy as analyse
    from kernelassay.report.anatomy import print_anatomy
    from kernelassay.session import Session

    result = analyse([Session.open(root) for root in sessions], tolerance, partial=partial)
    if as_json:
        emit_json("anatomy", result.to_json())
    else:
        print_anatomy(console(), result)


COMMANDS = (explain, anatomy)
