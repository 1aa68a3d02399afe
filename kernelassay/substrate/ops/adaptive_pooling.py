"""Adaptive average pooling: the window follows from the two extents."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from torch import fx

from kernelassay.kernel import Scalar
from kernelassay.substrate.lowering import Context, Lowered, lowers
from kernelassay.substrate.operands import both_styles, int_argument, require_float32
from kernelassay.trace import meta


@lowers("aten._adaptive_avg_pool2d.default")
def lower_adaptive_avg_pool(node: fx.Node, context: Context) -> Lowered:
    """Averages of windows that divide an image as evenly as integers allow."""
    operand = node.args[0]
    require_float32(node, operand)

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        *planes, in_h, in_w = meta(nodes[operand.name]).shape
        out_h, out_w = meta(nodes[node.name]).shape[-2:]
        count = int_argument(prod(planes), f"the plane count of {node.name}")
        return {"planes": count, "in_h": in_h, "in_w": in_w, "out_h": out_h, "out_w": out_w}

    return Lowered(
        template="adaptive_avg_pool2d",
        sources=both_styles("adaptive_avg_pool2d", {}),
        operands=(("x", operand.name),),
        outputs=(("y", node.name),),
        nodes=(node.name,),
        scalars=scalars,
    )
