"""``kernelassay compare``: how two protocols differ, by what, and at other tolerances."""

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
from kernelassay.errors import UsageError


@click.command()
@session_options
@protocol_option("give two, or one with --sweep.", required=True)
@click.option("--sweep", is_flag=True, help="Score each protocol at every tolerance of a ladder.")
@click.option(
    "--at",
    "ladder",
    multiple=True,
    type=NumberRange(0.0),
    metavar="TOLERANCE",
    help="Sweep at this tolerance; may be repeated. Default: two a decade, 0.1 to 1e-6.",
)
@json_option
def compare(
    sessions: tuple[Path, ...],
    names: tuple[str, ...],
    tolerance: float,
    partial: bool,
    sweep: bool,
    ladder: tuple[float, ...],
    as_json: bool,
) -> None:
    """Tell how two protocols differ on the mutants of a SESSION directory.

    Mutants that one detects and the other misses, and what of the difference
    each part makes in which they differ (inputs, tolerance and others), with
    the price in rejected correct kernels. Several sessions of one campaign
    are taken together.
    """
    from kernelassay.analysis.compare import compare_sessions
    from kernelassay.analysis.sweep import STEPS
    from kernelassay.protocols import chosen
    from kernelassay.report.compare import print_compared
    from kernelassay.session import Session

    swept = (ladder or STEPS) if sweep or ladder else ()
    if len(names) != 2 and not (swept and len(names) == 1):
        raise UsageError(
            f"{len(names)} protocols to compare",
            hint="name two: --protocol A --protocol B; or one with --sweep",
        )
    protocols = chosen(names) or ()
    stores = [Session.open(root) for root in sessions]
    result = compare_sessions(stores, protocols, tolerance, partial=partial, ladder=swept)
    if as_json:
        emit_json("compare", result.to_json())
    else:
        print_compared(console(), result)


COMMANDS = (compare,)
