"""Softmax and log-softmax over one dimension."""

from __future__ import annotations

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.substrate.layout import COLUMNS, ROWS, Span
from kernelassay.substrate.lowering import Context, Lowered, lowers
from kernelassay.substrate.operands import styled
from kernelassay.trace import meta


@lowers("aten._softmax.default", "aten._log_softmax.default")
def lower_softmax(node: fx.Node, context: Context) -> Lowered:
    """By rows over the last dimension, else by columns."""
    operand, dim = node.args[0], node.args[1]
    if meta(operand).dtype != "float32" or meta(node).dtype != "float32":
        raise UnsupportedError(f"{node.target} of {meta(operand).dtype}")
    is_log = "log" in str(node.target)

    def result(v: str) -> str:
        return f"{v} - largest - logf(total)" if is_log else f"expf({v} - largest) / total"

    span = Span.of(operand, dim)
    shape, names = ("rows", ROWS) if span.is_trailing else ("columns", COLUMNS)
    more = ("online", "vectorised") if span.is_trailing else ("single_pass",)
    return Lowered(
        template="log_softmax" if is_log else "softmax",
        sources=styled(f"softmax_{shape}", {"RESULT": result}, *more),
        operands=(("x", operand.name),),
        outputs=(("y", node.name),),
        nodes=(node.name,),
        scalars=lambda nodes: span.scalars(nodes, operand.name, names),
    )
