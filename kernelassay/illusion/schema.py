"""What an operator takes and gives: tensors whose dimensions share names, each with candidates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from kernelassay.errors import UsageError

Dims = tuple[tuple[str, int], ...]
"""A size per dimension, in the schema's order: what a case fixes."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Dimensions with the sizes that a fuzzer may pick, and the tensors made of them.

    ``dims`` maps a dimension to its candidates, all independent of one another; ``inputs`` maps
    each input tensor, in the order of the operator's arguments, to the names of its dimensions;
    ``output`` names those of the one output. Raises :class:`UsageError` for a tensor with an
    unknown dimension, a dimension without candidates and an operator without inputs. (The original
    takes both for size 1, which hides a spelling mistake.)
    """

    dims: Mapping[str, tuple[int, ...]]
    inputs: Mapping[str, tuple[str, ...]]
    output: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.inputs:
            raise UsageError("has no input tensor", where="schema", hint='inputs: {"x": ["B"]}')
        for name, sizes in self.dims.items():
            if not sizes or any(not isinstance(n, int) or n < 1 for n in sizes):
                raise UsageError(
                    f"dimension {name} has the candidates {list(sizes)}",
                    where="schema",
                    hint="give at least one size, all of them integers of at least 1",
                )
        for tensor, names in (*self.inputs.items(), ("output", self.output)):
            for name in names:
                if name not in self.dims:
                    raise UsageError(
                        f"{tensor} has the unknown dimension {name!r}",
                        where="schema",
                        hint=f"its dimensions are {', '.join(self.dims)}",
                    )

    def shape(self, tensor: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of an input, or of ``"output"``, where dimensions have these sizes."""
        names = self.output if tensor == "output" else self.inputs[tensor]
        return tuple(sizes[name] for name in names)

    def record(self) -> dict[str, Any]:
        """As plain values, in pairs: the order of dimensions and inputs counts."""
        return {
            "dims": [[name, list(sizes)] for name, sizes in self.dims.items()],
            "inputs": [[name, list(names)] for name, names in self.inputs.items()],
            "output": list(self.output),
        }

    def elements(self, sizes: Mapping[str, int]) -> int:
        """How many elements all tensors have together."""
        return sum(math.prod(self.shape(t, sizes)) for t in (*self.inputs, "output"))

    def every(self) -> Iterator[Dims]:
        """All choices of sizes, the last dimension running fastest."""
        for sizes in product(*self.dims.values()):
            yield tuple(zip(self.dims, sizes, strict=True))
