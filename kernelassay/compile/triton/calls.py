"""What a Triton module's ``run`` is called with, as far as its host code may look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelassay.illusion.schema import Schema


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor without its values. ``strides``, in elements, are contiguous when None."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None


Call = tuple[TensorSpec, ...]
"""The arguments of one call of ``run``, by position."""


def representative_calls(schema: Schema, dtypes: Sequence[str]) -> tuple[Call, ...]:
    """A call for every dtype and every choice of sizes that a schema allows, all contiguous."""
    return tuple(
        tuple(TensorSpec(schema.shape(name, dict(sizes)), dtype) for name in schema.inputs)
        for dtype in dtypes
        for sizes in schema.every()
    )
