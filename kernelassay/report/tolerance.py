"""What ``kernelassay vacuity`` and ``kernelassay ceiling`` print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from kernelassay.analysis.ceiling import (
    FAILS,
    KINDS,
    LOCATED,
    NEVER,
    PRECISION,
    UNDEFINED,
    Ceiling,
    ProblemCeilings,
)
from kernelassay.analysis.vacuity import BlindBand, growth

LOWEST = 5


def print_bands(console: Console, bands: Sequence[BlindBand], tolerance: float) -> None:
    """The blind bands."""
    table = Table(title=f"Blind band of allclose at {tolerance:g}", title_justify="left")
    for column in (
        "problem",
        "sizes",
        "mean output",
        "largest output",
        "largest undetectable relative error",
        "zeros pass",
        "a copied input passes",
        "noise passes",
    ):
        table.add_column(column)
    for band in bands:
        error = "unbounded" if band.undetectable is None else f"{band.undetectable:.3g}"
        table.add_row(
            band.problem,
            _sizes(band.overrides),
            f"{band.mean_output:.3g}",
            f"{band.largest_output:.3g}",
            error,
            _passes(band.zeros_pass, band.zeros_error),
            _passes(band.copy_passes, band.copy_error),
            _passes(band.noise_passes, band.noise_error),
        )
    console.print(table)
    console.print("in brackets the smallest tolerance at which it passes", soft_wrap=True)
    for one in growth(bands):
        console.print(
            f"{one.problem}: the undetectable error grows as {one.size}^{one.exponent:.2f}"
            f" ({one.smallest} to {one.largest}{f', {_sizes(one.others)}' if one.others else ''})",
            soft_wrap=True,
            markup=False,
        )


def _passes(accepted: bool | None, error: float | None) -> str:
    if accepted is None or error is None:
        return "-"
    return f"{'yes' if accepted else 'no'} ({error:.2e})"


def _sizes(sizes: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes) or "as written"


def print_ceilings(console: Console, found: Sequence[ProblemCeilings], tolerance: float) -> None:
    """A row per problem and kind of values, then how many of each status, and who has none."""
    table = Table(
        title=f"Largest input scale at which correct kernels pass {tolerance:g}"
        f" (to a factor of {PRECISION:g})",
        title_justify="left",
    )
    for column in ("problem", "sizes", "inputs"):
        table.add_column(column, overflow="fold")
    table.add_column("scale", justify="right")
    table.add_column("worst kernel beyond", overflow="fold")
    for column in ("fail", "its error", "float32 reference"):
        table.add_column(column, justify="right")
    for one in found:
        for ceiling in one.ceilings:
            first = ceiling is one.ceilings[0]
            head = (one.problem, _sizes(one.sizes)) if first else ("", "")
            table.add_row(*head, ceiling.kind, scale(ceiling), *_first(ceiling, one.kernels))
    if table.row_count:
        console.print(table)
    for line in _summary(found):
        console.print(line, soft_wrap=True)
    for one in found:
        if one.refused:
            console.print(f"no ceiling: {one.problem}: {one.refused}", soft_wrap=True)


def scale(ceiling: Ceiling) -> str:
    """The ceiling in words."""
    if ceiling.scale is None:
        return ceiling.status
    if ceiling.status == LOCATED:
        return f"{ceiling.scale:.3g}"
    return f"{'at least' if ceiling.beyond is None else 'never, to'} {ceiling.scale:.3g}"


def _first(ceiling: Ceiling, kernels: int) -> tuple[str, str, str, str]:
    """The kernel that strays most there, how many fail, its error and the reference's."""
    worst = ceiling.first
    if worst is None:
        return "", "", "", ""
    error = worst.outcome or f"{worst.error:.2e}"
    return worst.kernel, f"{worst.failing} of {kernels}", error, f"{worst.reference_error:.2e}"


def _summary(found: Sequence[ProblemCeilings]) -> Iterator[str]:
    """How many have which status, and the lowest ceilings."""
    told = [one for one in found if one.ceilings]
    for index, kind in enumerate(KINDS):
        counts = Counter(one.ceilings[index].status for one in told)
        states = ", ".join(f"{counts[s]} {s}" for s in (LOCATED, NEVER, FAILS, UNDEFINED))
        located = [(one.ceilings[index], one.problem) for one in told]
        lowest = sorted((c.scale, p) for c, p in located if c.status == LOCATED and c.scale)
        names = ", ".join(f"{name} {low:.3g}" for low, name in lowest[:LOWEST])
        yield f"{kind}: of {len(told)} problems {states}" + (f"; lowest: {names}" if names else "")
