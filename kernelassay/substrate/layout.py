"""How a reduction or a norm sees its operand: as [outer, length, inner]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import Scalar
from kernelassay.trace import meta


@dataclass(frozen=True)
class Span:
    """A run of adjacent dimensions ``first <= d < end`` of a tensor of ``rank`` dimensions."""

    first: int
    end: int
    rank: int

    @classmethod
    def of(cls, node: fx.Node, dims: Sequence[int] | int | None) -> Span:
        """The span of ``dims`` of the node's tensor; None or nothing means all of them.

        Raises:
            UnsupportedError: the dimensions are not adjacent.
        """
        rank = len(meta(node).shape)
        listed = [dims] if isinstance(dims, int) else list(dims or range(rank))
        ordered = sorted(d % rank for d in listed) if rank else [0]
        if ordered != list(range(ordered[0], ordered[-1] + 1)):
            raise UnsupportedError(f"dimensions {ordered} are not adjacent", where=node.name)
        return cls(ordered[0], ordered[-1] + 1, max(rank, 1))

    @property
    def is_trailing(self) -> bool:
        """Whether nothing follows the span, so that its elements lie in one row of memory."""
        return self.end == self.rank

    @property
    def is_everything(self) -> bool:
        """Whether the span is the whole tensor."""
        return self.is_trailing and self.first == 0

    def view(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """``shape`` as (outer, length, inner)."""
        return (
            prod(shape[: self.first]),
            prod(shape[self.first : self.end]),
            prod(shape[self.end :]),
        )

    def scalars(
        self, nodes: Mapping[str, fx.Node], name: str, names: tuple[str, str, str]
    ) -> dict[str, Scalar]:
        """Outer, length and inner extents of node ``name``, under ``names``; "" leaves one out."""
        sizes = self.view(meta(nodes[name]).shape)
        return {key: size for key, size in zip(names, sizes, strict=True) if key}


ROWS = ("rows", "cols", "")
COLUMNS = ("outer", "length", "inner")
