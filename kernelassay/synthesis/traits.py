"""What inputs of different problems have in common: the values they hold, or how they are varied.

Official inputs and those of protocols are the same for every problem, and so are targeted ones, up
to the magnitude that a problem bears. Sizes are each problem's own; of an input at other sizes the
values and the conditions remain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelassay.analysis.anatomy import TARGETED, transform_family
from kernelassay.input_values import MOSAIC, entries_of
from kernelassay.inputs import GENERATED, SMALL


def trait(record: Mapping[str, Any]) -> str:
    """The trait of a planned input: what it may share with inputs of other problems."""
    group, spec = record["group"], record["spec"]
    if group == TARGETED:
        return f"values: {transform_family(spec['transform'])}"
    if group == "shape":
        return (
            f"sizes, {transform_family(spec['transform'])}, {spec['order']}, {spec['surroundings']}"
        )
    if group == GENERATED:
        transform = str(spec["transform"])
        kind = "mosaic" if MOSAIC in transform else entries_of(transform)[0]
        return f"{rung(record)}: {transform_family(kind)}, {spec['order']}, {spec['surroundings']}"
    name = _short(record)
    return name.partition("/")[0] if group == "parameters" else name


def rung(record: Mapping[str, Any]) -> str:
    """The generator that made a planned input; empty if none did."""
    return _short(record).partition("/")[0] if record["group"] == GENERATED else ""


def _short(record: Mapping[str, Any]) -> str:
    return str(record["id"]).removeprefix(SMALL)
