"""Max and average pooling in one to three dimensions. One dimension traces to a 2-d operator
between ``unsqueeze`` and ``squeeze``; it gets a kernel of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import Scalar
from kernelassay.substrate.lowering import Context, Lowered, lowers
from kernelassay.substrate.operands import argument, both_styles, int_argument, require_float32
from kernelassay.substrate.ops.convolution import per_axis
from kernelassay.trace import meta

_Axes = tuple[int, ...]


@lowers("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def lower_max_pool(node: fx.Node, context: Context) -> Lowered:
    """The values of max pooling, dilated or not; the indices must be unused."""
    return _pool(node, context.only_output(node), "max_pool")


@lowers("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def lower_avg_pool(node: fx.Node, context: Context) -> Lowered:
    """Average pooling over the window's area or, without ``count_include_pad``, its valid part."""
    if argument(node, 6, "divisor_override") is not None:
        raise UnsupportedError(f"{node.target} with divisor_override")
    return _pool(node, node, "avg_pool")


def _pool(node: fx.Node, output: fx.Node, kind: str) -> Lowered:
    operand = node.args[0]
    require_float32(node, operand)
    traced_dims = 3 if "pool3d" in str(node.target) else 2
    dims = 1 if traced_dims == 2 and _is_one_dimensional(node) else traced_dims

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        return _scalars(nodes[node.name], nodes[output.name], traced_dims, dims)

    template = f"{kind}{dims}d"
    return Lowered(
        template=template,
        sources=both_styles(template, {}),
        operands=(("x", operand.name),),
        outputs=(("y", output.name),),
        nodes=(node.name,) if node is output else (node.name, output.name),
        scalars=scalars,
        fixed=_fixed(node, traced_dims, dims),
    )


def _is_one_dimensional(node: fx.Node) -> bool:
    operand = node.args[0]
    if str(operand.target) != "aten.unsqueeze.default":
        return False
    rank = len(meta(operand).shape)
    window = _windows(node, 2)
    unit = all(values[0] == 1 for what, values in window.items() if what != "pad")
    return operand.args[1] % rank == rank - 2 and unit and window["pad"][0] == 0


def _windows(node: fx.Node, dims: int) -> dict[str, _Axes]:
    kernel = _expanded(node.args[1], dims)
    windows = {
        "kernel": kernel,
        "stride": _expanded(argument(node, 2, "stride"), dims) or kernel,
        "pad": _expanded(argument(node, 3, "padding", (0,)), dims),
    }
    if "max_pool" in str(node.target):
        windows["dilation"] = _expanded(argument(node, 4, "dilation", (1,)), dims)
    return windows


def _expanded(values: object, dims: int) -> _Axes:
    listed = tuple(values) if isinstance(values, Sequence) else ()
    return listed * dims if len(listed) == 1 else listed


def _scalars(node: fx.Node, output: fx.Node, traced_dims: int, dims: int) -> Mapping[str, Scalar]:
    in_shape, out_shape = meta(node.args[0]).shape, meta(output).shape
    planes = prod(in_shape[:-traced_dims])
    scalars: dict[str, Scalar] = {
        "planes": int_argument(planes, f"the plane count of {node.name}"),
        **per_axis("in", in_shape[-dims:], dims),
        **per_axis("out", out_shape[-dims:], dims),
    }
    return {**scalars, **_fixed(node, traced_dims, dims)}


def _fixed(node: fx.Node, traced_dims: int, dims: int) -> dict[str, int]:
    """The scalars that are constants of the node."""
    fixed: dict[str, int] = {}
    for what, values in _windows(node, traced_dims).items():
        fixed.update(per_axis(what, values[-dims:], dims))
    if "avg_pool" in str(node.target):
        fixed["count_include_pad"] = bool(argument(node, 5, "count_include_pad", True))
    return fixed
