"""Prefix sums and products along one dimension."""

from __future__ import annotations

from collections.abc import Mapping

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import Scalar
from kernelassay.substrate.layout import COLUMNS, Span
from kernelassay.substrate.lowering import Context, Lowered, lowers
from kernelassay.substrate.operands import both_styles, int_argument, require_float32
from kernelassay.trace import meta


@lowers("aten.cumsum.default", "aten.cumprod.default")
def lower_scan(node: fx.Node, context: Context) -> Lowered:
    """Inclusive scans in float32; other scans arise from flips and slices around these."""
    operand, dim = node.args[:2]
    require_float32(node, operand, node)
    if not meta(operand).shape:
        raise UnsupportedError(f"{node.target} of a 0-d tensor")
    name = "cumsum" if "cumsum" in str(node.target) else "cumprod"
    span = Span.of(operand, dim)

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        sizes = span.scalars(nodes, operand.name, COLUMNS)
        int_argument(int(sizes["length"]), f"the length {node.name} scans")
        int_argument(int(sizes["outer"]) * int(sizes["inner"]), f"the line count of {node.name}")
        return sizes

    return Lowered(
        template=name,
        sources=both_styles(
            "scan",
            {
                "NAME": name,
                "OP": "+" if name == "cumsum" else "*",
                "IDENTITY": "0.0f" if name == "cumsum" else "1.0f",
            },
        ),
        operands=(("x", operand.name),),
        outputs=(("y", node.name),),
        nodes=(node.name,),
        scalars=scalars,
    )
