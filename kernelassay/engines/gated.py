"""Cells that the gate measured while a problem was planned, and that count as the run's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelassay.cell import Cell
from kernelassay.population import original_id
from kernelassay.session import first_input, inputs_of


@dataclass(frozen=True, slots=True)
class Gated:
    """What the gate knows of one input: cells of ``benign`` variants, and the ``fixed`` ones.

    ``fixed`` are those of all originals and controls, or none.
    """

    fixed: tuple[Cell, ...] = ()
    benign: tuple[Cell, ...] = ()


def gated(plan: Mapping[str, Any], cells: Iterable[Cell]) -> dict[str, Gated]:
    """By input id, those of the gate's ``cells`` that need not be measured again for a plan.

    None are on the first input, where candidates also run in another order of threads, on inputs
    that are not valid, and of variants of a call that lost a style after the gate had begun: they
    may have been compared with an original that is none any more.
    """
    originals = {original_id(c["id"], style) for c in plan["calls"] for style in c["styles"]}
    unchanged = {call["id"] for call in plan["calls"] if not call["not_admitted"]}
    variants = {
        record["id"]
        for record in plan["benign"]
        if record["call"] in unchanged and not record["unsupported"]
    }
    by_input: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_input[cell.input].append(cell)
    later = {record["id"] for record in inputs_of(plan)} - {first_input(plan)}
    found: dict[str, Gated] = {}
    for name in sorted(later & by_input.keys()):
        fixed = tuple(
            cell
            for cell in by_input[name]
            if cell.candidate in originals or cell.candidate.startswith("control/")
        )
        complete = originals <= {cell.candidate for cell in fixed}
        benign = tuple(cell for cell in by_input[name] if cell.candidate in variants)
        found[name] = Gated(fixed if complete else (), benign)
    return found
