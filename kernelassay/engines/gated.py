"""Cells that the gate measured while a problem was planned, and that count as the run's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelassay.cell import Cell
from kernelassay.matrix import measured
from kernelassay.population import original_id
from kernelassay.session import first_input, inputs_of, judging_correct


@dataclass(frozen=True, slots=True)
class Gated:
    """What the gate measured on one input: ``cells`` of candidates, and the ``fixed`` ones.

    ``fixed`` are those of all originals and controls, or none.
    """

    fixed: tuple[Cell, ...] = ()
    cells: tuple[Cell, ...] = ()


def gated(
    plan: Mapping[str, Any], cells: Iterable[Cell], *, ordered: bool = False
) -> dict[str, Gated]:
    """By input id, those of the gate's ``cells`` that need not be measured again for a plan.

    None are on inputs that are not valid, and of variants of a call that lost a style after the
    gate had begun: they may have been compared with an original that is none any more. On the first
    input candidates also run in another order of threads: ``ordered`` tells that they did so in the
    gate, on the first one that it saw. A cell that was lost with its process is tried again.
    """
    originals = {original_id(c["id"], style) for c in plan["calls"] for style in c["styles"]}
    unchanged = {call["id"] for call in plan["calls"] if not call["not_admitted"]}
    kept = {
        record["id"]
        for record in plan["benign"]
        if record["call"] in unchanged and not record["unsupported"]
    }
    kept |= {mutant["id"] for mutant in plan["mutants"] if measured(mutant)}
    by_input: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_input[cell.input].append(cell)
    usable = {record["id"] for record in inputs_of(plan)}
    if not ordered or first_input(plan) != plan["inputs"][0]["id"]:
        usable.remove(first_input(plan))
    found: dict[str, Gated] = {}
    for name in sorted(usable & by_input.keys()):
        fixed = tuple(
            cell
            for cell in by_input[name]
            if cell.candidate in originals or cell.candidate.startswith("control/")
        )
        complete = originals <= {cell.candidate for cell in fixed}
        candidates = tuple(
            cell for cell in by_input[name] if cell.candidate in kept and not cell.lost
        )
        found[name] = Gated(fixed if complete else (), candidates)
    return found


def of_correct(plan: Mapping[str, Any], cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """The gate's cells of a plan's correct kernels on inputs that are not valid and yet judge."""
    names = {original_id(c["id"], style) for c in plan["calls"] for style in c["styles"]}
    names |= {record["id"] for record in plan["benign"] if not record["unsupported"]}
    found: dict[str, list[Cell]] = {record["id"]: [] for record in judging_correct(plan)}
    for cell in cells:
        if cell.input in found and cell.candidate in names:
            found[cell.input].append(cell)
    return found
