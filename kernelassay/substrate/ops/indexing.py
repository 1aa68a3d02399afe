"""Copies through an index tensor: index_select, indexing by one tensor, embedding, gather."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN, Scalar
from kernelassay.substrate.ctypes import c_type
from kernelassay.substrate.lowering import Context, Lowered, Scalars, lowers, source
from kernelassay.trace import meta


@lowers("aten.index_select.default")
def lower_index_select(node: fx.Node, context: Context) -> Lowered:
    """Slices of ``x`` along one dimension, in the order of a 1-d index."""
    x, dim, index = node.args
    return _select(node, x, int(dim) % len(meta(x).shape), index, negative=False)


@lowers("aten.index.Tensor")
def lower_index(node: fx.Node, context: Context) -> Lowered:
    """``x[:, index]``: one integer tensor, of any shape, on one dimension."""
    x, indices = node.args
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) != 1 or meta(given[0][1]).dtype not in ("int64", "int32"):
        raise UnsupportedError(f"{node.target} by several tensors or a mask")
    return _select(node, x, *given[0], negative=True)


@lowers("aten.embedding.default")
def lower_embedding(node: fx.Node, context: Context) -> Lowered:
    """Rows of a weight matrix."""
    weight, index = node.args[:2]
    return _select(node, weight, 0, index, negative=False)


@lowers("aten.gather.default")
def lower_gather(node: fx.Node, context: Context) -> Lowered:
    """One element per index along a dimension; the other extents of both tensors must agree."""
    x, dim, index = node.args[:3]
    dim = int(dim) % max(len(meta(x).shape), 1)

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        shape, picked = meta(nodes[x.name]).shape, meta(nodes[index.name]).shape
        if shape[:dim] + shape[dim + 1 :] != picked[:dim] + picked[dim + 1 :]:
            raise UnsupportedError(f"gather from {shape} by {picked}: other extents differ")
        return _extents(shape, dim, picked[dim])

    scalars(context.traced.nodes)
    return _lowered(node, "gather", (x, index), _values(x, index), scalars)


def _select(node: fx.Node, x: fx.Node, dim: int, index: fx.Node, *, negative: bool) -> Lowered:
    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        return _extents(meta(nodes[x.name]).shape, dim, prod(meta(nodes[index.name]).shape))

    def wrap(j: str) -> str:
        return f"{j} < 0 ? {j} + length : {j}" if negative else j

    values = _values(x, index) | {"WRAP": wrap}
    return _lowered(node, "index_select", (x, index), values, scalars)


def _extents(shape: tuple[int, ...], dim: int, count: int) -> Mapping[str, Scalar]:
    return {
        "outer": prod(shape[:dim]),
        "length": shape[dim],
        "count": count,
        "inner": prod(shape[dim + 1 :]),
    }


def _values(x: fx.Node, index: fx.Node) -> dict[str, str | Callable[..., str]]:
    return {"T": c_type(meta(x).dtype), "INDEX": c_type(meta(index).dtype)}


def _lowered(
    node: fx.Node,
    template: str,
    operands: tuple[fx.Node, fx.Node],
    values: dict[str, str | Callable[..., str]],
    scalars: Scalars,
) -> Lowered:
    x, index = operands
    return Lowered(
        template=template,
        sources={style: source(f"{template}_{style}", **values) for style in (PLAIN, OPTIMISED)},
        operands=(("x", x.name), ("index", index.name)),
        outputs=(("y", node.name),),
        nodes=(node.name,),
        scalars=scalars,
    )
