"""``kernelassay suite``: the inputs that detect most, chosen on a session's kill matrix."""

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
from kernelassay.errors import UsageError


@click.command()
@session_options
@protocol_option("its acceptance rule judges, on any inputs. Default: allclose at --tolerance.")
@click.option(
    "--budget",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Inputs of the suite, per problem.",
)
@click.option(
    "--choose",
    "chooser",
    type=click.Choice(["smoothed", "greedy", "exact", "cheapest"]),
    default="smoothed",
    show_default=True,
    help="How: greedy cover of the mutants measured, its optimum, greedy cover of unknown ones"
    " like them (smoothed), or the cheapest inputs that detect all, whatever the budget.",
)
@click.option(
    "--held-out",
    "held_out",
    type=click.Choice(["id", "rule", "family", "problem"]),
    multiple=True,
    default=("id",),
    show_default=True,
    help="Score on mutants kept from the choice: halves by id or rule, each family or problem in"
    " turn; may be repeated.",
)
@json_option
def suite(
    sessions: tuple[Path, ...],
    tolerance: float,
    partial: bool,
    names: tuple[str, ...],
    budget: int,
    chooser: str,
    held_out: tuple[str, ...],
    as_json: bool,
) -> None:
    """Choose the inputs that detect most mutants of a SESSION.

    What each budget of inputs per problem detects, on all mutants and on those
    held out; greedily, at best, and with one recipe for all problems; and what
    each chosen input is for. An input that the validity gate refused, or on
    which a correct kernel is rejected, is never chosen. Several sessions of one
    campaign are taken together. Needs whole rows (`run --cells rows`).
    """
    from kernelassay.protocols import chosen
    from kernelassay.report.suite import print_suites
    from kernelassay.session import Session
    from kernelassay.synthesis.suites import Asked, analyse

    protocols = chosen(names) or ()
    if len(protocols) > 1:
        raise UsageError(
            f"{len(protocols)} protocols, and one acceptance rule to choose for",
            hint="name one protocol, or none",
        )
    asked = Asked(
        tolerance=tolerance,
        protocol=next(iter(protocols), None),
        held_out=tuple(dict.fromkeys(held_out)),
        chooser=chooser,
        budget=budget,
    )
    stores = [Session.open(root) for root in sessions]
    result = analyse(stores, asked, partial=partial)
    if as_json:
        emit_json("suite", result.to_json())
    else:
        print_suites(console(), result)


COMMANDS = (suite,)
