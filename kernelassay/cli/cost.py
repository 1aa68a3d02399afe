"""``kernelassay cost``: what a session cost, and how well that was predicted."""

from __future__ import annotations

from pathlib import Path

import click

from kernelassay.cli.selection import console, emit_json, json_option


@click.command()
@click.argument("sessions", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--fit-on",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="SESSION",
    help="Predict with coefficients fitted on the timings of this session, not with those that"
    " ship; may be repeated.",
)
@click.option(
    "--mutants",
    type=click.IntRange(min=1),
    help="Tell also what so many mutants of the same problems would take.",
)
@json_option
def cost(
    sessions: tuple[Path, ...], fit_on: tuple[Path, ...], mutants: int | None, as_json: bool
) -> None:
    """Hold what a SESSION took against what FLOP and bytes predict.

    By stage and by kind of kernel, with the rank correlation over its units
    (the order they are run in), and the workers that were replaced. Several
    sessions of one campaign are read together.
    """
    from kernelassay.analysis.cost import cost_report, fitted, machine_of
    from kernelassay.session import Session

    stores = [Session.open(session) for session in sessions]
    models = [Session.open(session) for session in fit_on]
    machine = fitted(*models) if models else machine_of(stores[0])
    report = cost_report(stores, machine)
    if as_json:
        growth = None if mutants is None else {"mutants": mutants, "times": report.growth(mutants)}
        emit_json("cost", {**report.to_json(), "growth": growth})
        return
    from kernelassay.report.cost import print_cost

    print_cost(console(), report, mutants)


COMMANDS = (cost,)
