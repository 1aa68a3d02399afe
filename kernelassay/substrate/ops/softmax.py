"""Softmax and log-softmax over one dimension."""

from __future__ import annotations

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.substrate.layout import COLUMNS, ROWS, Span
from kernelassay.substrate.lowering import Context, Lowered, lowers, source
from kernelassay.trace import meta

ONLINE = "online"


@lowers("aten._softmax.default", "aten._log_softmax.default")
def lower_softmax(node: fx.Node, context: Context) -> Lowered:
    """By rows over the last dimension (there is an ``online`` style too), else by columns."""
    operand, dim = node.args[0], node.args[1]
    if meta(operand).dtype != "float32" or meta(node).dtype != "float32":
        raise UnsupportedError(f"{node.target} of {meta(operand).dtype}")
    is_log = "log" in str(node.target)

    def result(v: str) -> str:
        return f"{v} - largest - logf(total)" if is_log else f"expf({v} - largest) / total"

    span = Span.of(operand, dim)
    shape, names = ("rows", ROWS) if span.is_trailing else ("columns", COLUMNS)
    styles = (PLAIN, OPTIMISED, ONLINE) if span.is_trailing else (PLAIN, OPTIMISED)
    return Lowered(
        template="log_softmax" if is_log else "softmax",
        sources={style: source(f"softmax_{shape}_{style}", RESULT=result) for style in styles},
        operands=(("x", operand.name),),
        outputs=(("y", node.name),),
        nodes=(node.name,),
        scalars=lambda nodes: span.scalars(nodes, operand.name, names),
    )
