"""``kernelassay vacuity`` and ``kernelassay ceiling``: what a tolerance lets pass, and what not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from kernelassay.cli.selection import (
    NumberRange,
    Selection,
    console,
    emit_json,
    json_option,
    problem_jobs_option,
    problem_options,
    style_option,
)
from kernelassay.errors import UsageError

if TYPE_CHECKING:
    from kernelassay.analysis.ceiling import ProblemCeilings

set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="SIZE=N[,SIZE=N]...",
    help="Sizes to try; each --set is a case of its own.",
)
tolerance_option = click.option(
    "--tolerance",
    type=NumberRange(0.0, min_open=True),
    default=1e-2,
    show_default=True,
    help="Absolute and relative tolerance of allclose.",
)


@click.command()
@problem_options
@set_option
@tolerance_option
@json_option
def vacuity(
    names: tuple[str, ...],
    kernelbench: Path | None,
    level: int | None,
    files: tuple[Path, ...],
    settings: tuple[str, ...],
    tolerance: float,
    as_json: bool,
) -> None:
    """Print the largest relative error that allclose at a tolerance cannot see.

    Measured on the reference alone, under the official inputs, for each --set in turn.
    """
    from kernelassay.analysis.sizes import parse_settings
    from kernelassay.analysis.vacuity import blind_bands

    problems = Selection(names, kernelbench, level, files).problems()
    bands = blind_bands(problems, parse_settings(settings), tolerance)
    if as_json:
        emit_json("vacuity", [band.to_json() for band in bands])
        return
    from kernelassay.report.tolerance import print_bands

    print_bands(console(), bands, tolerance)


@click.command()
@problem_options
@click.option("--shrink", is_flag=True, help="Scale foreign problems down to what a CPU can run.")
@set_option
@tolerance_option
@style_option
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the values."
)
@click.option(
    "--up-to",
    type=NumberRange(1.0),
    default=math.inf,
    metavar="SCALE",
    help="Try no larger scale. Default: until nothing is finite.",
)
@problem_jobs_option
@json_option
def ceiling(
    names: tuple[str, ...],
    kernelbench: Path | None,
    level: int | None,
    files: tuple[Path, ...],
    shrink: bool,
    settings: tuple[str, ...],
    tolerance: float,
    styles: tuple[str, ...],
    seed: int,
    up_to: float,
    jobs: int,
    as_json: bool,
) -> None:
    """Print the largest input scale at which correct kernels still pass a tolerance.

    Originals and their benign variants run on dense values of both signs, and on the same without
    their signs, at growing scales, and are held against float64. The scale is that of all floating
    inputs; parameters stay as they are.
    """
    from kernelassay.analysis.ceiling import CeilingOptions, ceilings
    from kernelassay.analysis.sizes import parse_settings, resized
    from kernelassay.execute.toolbox import CpuToolbox
    from kernelassay.report.tolerance import print_ceilings
    from kernelassay.session import user_cache
    from kernelassay.styles import choose

    if shrink and settings:
        raise UsageError("--shrink and --set both choose the sizes", hint="give one of them")
    selected = Selection(names, kernelbench, level, files).problems()
    cases = [resized(p, setting) for p in selected for setting in parse_settings(settings)]
    options = CeilingOptions(tolerance, choose(styles), seed, shrink, up_to, jobs)
    order = {(case.id, case.shrunk): place for place, case in enumerate(cases)}
    asked = {case.id: case.shrunk for case in cases} if shrink else {}  # it changes the sizes
    found: list[ProblemCeilings] = []
    with Console(stderr=True).status("") as status:
        for done in ceilings(cases, CpuToolbox.at(user_cache()), options, status.update):
            found.append(done)
            click.echo(f"[{len(found)}/{len(cases)}] {_line(done)}", err=True)
    found.sort(key=lambda done: order[done.problem, asked.get(done.problem, done.sizes)])
    if as_json:
        emit_json("ceiling", [done.to_json() for done in found])
    else:
        print_ceilings(console(), found, tolerance)


def _line(done: ProblemCeilings) -> str:
    from kernelassay.report.tolerance import scale

    told = ", ".join(f"{one.kind} {scale(one)}" for one in done.ceilings)
    return f"{done.problem}: {told or f'no ceiling: {done.refused}'} ({done.seconds:.0f} s)"


COMMANDS = (vacuity, ceiling)
