"""The losses that the trace keeps whole: cross entropy and Kullback-Leibler divergence."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import Scalar
from kernelassay.substrate.lowering import Context, Lowered, lowers
from kernelassay.substrate.operands import argument, int_argument, require_float32, styled
from kernelassay.trace import meta

# The values of PyTorch's reduction argument.
MEAN, SUM = 1, 2


@lowers("aten.cross_entropy_loss.default")
def lower_cross_entropy(node: fx.Node, context: Context) -> Lowered:
    """Mean cross entropy of [rows, classes] logits against int64 class indices [rows]."""
    logits, target = node.args[:2]
    require_float32(node, logits)
    if len(meta(logits).shape) != 2 or meta(target).dtype != "int64":
        raise UnsupportedError("cross entropy other than [rows, classes] against class indices")
    if argument(node, 2, "weight") is not None or argument(node, 5, "label_smoothing", 0.0):
        raise UnsupportedError("cross entropy with class weights or label smoothing")
    if argument(node, 3, "reduction", MEAN) != MEAN:
        raise UnsupportedError("cross entropy without the mean over rows")

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        rows, classes = meta(nodes[logits.name]).shape
        ignore = argument(nodes[node.name], 4, "ignore_index", -100)
        return {"rows": rows, "classes": classes, "ignore_index": int(str(ignore))}

    return Lowered(
        template="cross_entropy",
        sources=styled("cross_entropy", {}, "split"),
        operands=(("logits", logits.name), ("target", target.name)),
        outputs=(("y", node.name),),
        nodes=(node.name,),
        scalars=scalars,
    )


@lowers("aten.kl_div.default")
def lower_kl_div(node: fx.Node, context: Context) -> Lowered:
    """The summed or averaged divergence of log-probabilities from (log-)probabilities."""
    x, t = node.args[:2]
    require_float32(node, x, t)
    if meta(x).shape != meta(t).shape:
        raise UnsupportedError("kl_div with broadcasting")
    reduction = argument(node, 2, "reduction", MEAN)
    if reduction not in (MEAN, SUM):
        raise UnsupportedError("kl_div without a reduction")
    log_target = bool(argument(node, 3, "log_target", False))
    keys = {
        "TARGET_KIND": "log-probabilities" if log_target else "probabilities",
        "TERM": "expf(t[i]) * (t[i] - x[i])"
        if log_target
        else "t[i] > 0.0f ? t[i] * (logf(t[i]) - x[i]) : 0.0f",
    }

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        total = prod(meta(nodes[x.name]).shape)
        int_argument(total, "the element count of kl_div")
        return {"total": total, "divisor": float(total) if reduction == MEAN else 1.0}

    return Lowered(
        template="kl_div",
        sources=styled("kl_div", keys, "split"),
        operands=(("x", x.name), ("t", t.name)),
        outputs=(("y", node.name),),
        nodes=(node.name,),
        scalars=scalars,
    )
