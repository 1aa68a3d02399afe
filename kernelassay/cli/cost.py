"""``kernelassay cost``: what a session cost, and how well that was predicted."""

from __future__ import annotations

from pathlib import Path

import click

from kernelassay.cli.selection import console, emit_json, json_option


@click.command()
@click.argument("session", type=click.Path(path_type=Path))
@click.option(
    "--fit-on",
    type=click.Path(path_type=Path),
    metavar="SESSION",
    help="Predict with coefficients fitted on this session's timings, not with those that ship.",
)
@json_option
def cost(session: Path, fit_on: Path | None, as_json: bool) -> None:
    """Hold what a SESSION took against what FLOP and bytes predict.

    By stage and by kind of kernel, with the rank correlation over its units
    (the order they are run in), and the workers that were replaced.
    """
    from kernelassay.analysis.cost import cost_report, fitted, machine_of
    from kernelassay.session import Session

    store = Session.open(session)
    machine = machine_of(store) if fit_on is None else fitted(Session.open(fit_on))
    report = cost_report(store, machine)
    if as_json:
        emit_json("cost", report.to_json())
        return
    from kernelassay.report.cost import print_cost

    print_cost(console(), report)


COMMANDS = (cost,)
