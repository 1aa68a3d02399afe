"""``kernelassay suite``: the inputs that detect most, chosen on a session's kill matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kernelassay.cli.selection import (
    console,
    emit_json,
    json_option,
    protocol_option,
    session_options,
)
from kernelassay.errors import UsageError
from kernelassay.problem import Problem


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
@click.option(
    "--expressible",
    type=click.Choice(["hidden", "get-inputs"]),
    help="Choose among the inputs that this format can express.",
)
@click.option(
    "--export",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the suites into this folder, with a report of what each input is for.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["hidden", "get-inputs", "json"]),
    help="As hidden tests of KernelBench-Verified (the folder is its hidden_tests), as text to"
    " append to problem files, or as specs.",
)
@click.option(
    "--kernelbench",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The checkout the session's problems came from.",
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
    expressible: str | None,
    directory: Path | None,
    form: str | None,
    kernelbench: Path | None,
    as_json: bool,
) -> None:
    """Choose the inputs that detect most mutants of a SESSION.

    What each budget of inputs per problem detects, on all mutants and on those
    held out; greedily, at best, and with one recipe for all problems; and what
    each chosen input is for. An input that the validity gate refused, or on
    which a correct kernel is rejected, is never chosen. Several sessions of one
    campaign are taken together. Needs whole rows (`run --cells rows`).
    """
    from kernelassay.joined import JoinedSessions
    from kernelassay.protocols import chosen
    from kernelassay.replay import find_problem
    from kernelassay.report.suite import print_export, print_suites
    from kernelassay.session import Session
    from kernelassay.synthesis.export import export
    from kernelassay.synthesis.expressible import bar
    from kernelassay.synthesis.suites import Asked, analyse, pools_of

    protocols = chosen(names) or ()
    if len(protocols) > 1:
        raise UsageError(
            f"{len(protocols)} protocols, and one acceptance rule to choose for",
            hint="name one protocol, or none",
        )
    if (directory is None) != (form is None):
        raise UsageError("--export and --format go together", hint="give both, or neither")

    def problem_of(plan: Mapping[str, Any]) -> Problem:
        return find_problem(plan, kernelbench)

    asked = Asked(
        tolerance=tolerance,
        protocol=next(iter(protocols), None),
        held_out=tuple(dict.fromkeys(held_out)),
        chooser=chooser,
        budget=budget,
        expressible=expressible or "",
    )
    if expressible:
        asked = replace(asked, barred=bar(expressible, problem_of))
    session = JoinedSessions([Session.open(root) for root in sessions])
    pools = pools_of(session, asked, partial=partial)
    result = analyse(session, pools, asked)
    written = None
    if directory is not None and form is not None:
        drawn = (session.sessions[0].manifest.get("cuda") or {}).get("draw") == "device"
        written = export(pools, result.suites, form, directory, problem_of, device_drawn=drawn)
    if as_json:
        exported = written.to_json() if written else None
        emit_json("suite", {**result.to_json(), "exported": exported})
    else:
        print_suites(console(), result)
        if written:
            print_export(console(), written)


COMMANDS = (suite,)
