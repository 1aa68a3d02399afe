"""What an operator takes and gives: tensors whose dimensions share names, each with candidates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from kernelassay.errors import UsageError

RANK = 32
"""More dimensions a tensor may not have: fewer than NumPy's limit, enough for any operator."""
ELEMENTS = 1 << 31
"""More elements than this, all tensors together, no case has that was ever run."""

Dims = tuple[tuple[str, int], ...]
"""A size per dimension, in the schema's order: what a case fixes."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Dimensions with the sizes that a fuzzer may pick, and the tensors made of them.

    ``dims`` maps a dimension to its candidates, all independent of one another; ``inputs`` maps
    each input tensor, in the order of the operator's arguments, to the names of its dimensions;
    ``output`` names those of the one output. Raises :class:`UsageError` for a tensor with an
    unknown dimension, a dimension without candidates and an operator without inputs. (The original
    takes both for size 1, which hides a spelling mistake.) So for an input that is called
    "output", and a tensor of more than :data:`RANK` dimensions.
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
        if "output" in self.inputs:
            raise UsageError(
                "an input is called 'output'", where="schema", hint="give it another name"
            )
        for tensor, names in (*self.inputs.items(), ("output", self.output)):
            if len(names) > RANK:
                raise UsageError(
                    f"{tensor} has {len(names)} dimensions",
                    where="schema",
                    hint=f"a tensor has at most {RANK}",
                )
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

    def all_elements(self) -> int:
        """The sum of :meth:`elements` over all choices of sizes, without going through them."""
        total = 0
        for names in (*self.inputs.values(), self.output):
            # A dimension that a tensor has k times counts by the k-th powers of its sizes.
            times = Counter(names)
            total += math.prod(
                sum(size ** times[name] for size in sizes) for name, sizes in self.dims.items()
            )
        return total

    def most_elements(self) -> int:
        """Elements of all tensors together where every dimension has its largest size."""
        return self.elements({name: max(sizes) for name, sizes in self.dims.items()})

    def every(self) -> Iterator[Dims]:
        """All choices of sizes, the last dimension running fastest."""
        for sizes in product(*self.dims.values()):
            yield tuple(zip(self.dims, sizes, strict=True))
