"""Layer, group and batch normalisation with their affine step, which may be left out.

Batch norm follows train mode: statistics of the batch, with the biased variance. The results
other than the normalised tensor (mean, reciprocal deviation, running statistics) must be unused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import Scalar
from kernelassay.substrate.ctypes import literal
from kernelassay.substrate.layout import ROWS, Span
from kernelassay.substrate.lowering import Context, Lowered, Scalars, lowers
from kernelassay.substrate.operands import styled
from kernelassay.trace import meta

_STYLES = {
    "layer_norm": ("single_pass", "vectorised", "wide"),
    "group_norm": ("wide",),
    "batch_norm": ("split",),
}


@lowers("aten.native_layer_norm.default")
def lower_layer_norm(node: fx.Node, context: Context) -> Lowered:
    """Normalisation over the trailing dimensions."""
    x, extent, weight, bias, eps = node.args
    rank = len(meta(x).shape)
    span = Span(rank - len(extent), rank, rank)
    return _norm(
        node,
        context,
        "layer_norm",
        (weight, bias),
        eps=eps,
        scalars=lambda nodes: span.scalars(nodes, x.name, ROWS),
    )


@lowers("aten.native_group_norm.default")
def lower_group_norm(node: fx.Node, context: Context) -> Lowered:
    """Normalisation over groups of channels and all pixels."""
    x, weight, bias, *_, eps = node.args

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        batch, channels, *pixels = meta(nodes[x.name]).shape
        groups = nodes[node.name].args[6]
        return {
            "batch": batch,
            "groups": groups,
            "group_size": channels // groups,
            "pixels": prod(pixels),
        }

    return _norm(node, context, "group_norm", (weight, bias), eps=eps, scalars=scalars)


@lowers(
    "aten._native_batch_norm_legit_functional.default",
    "aten._native_batch_norm_legit.default",
    "aten._native_batch_norm_legit.no_stats",
    "aten.native_batch_norm.default",
)
def lower_batch_norm(node: fx.Node, context: Context) -> Lowered:
    """Normalisation per channel by the statistics of the batch."""
    arguments = list(node.args)
    if not str(node.target).endswith("no_stats"):
        if not arguments[5]:
            return _batch_norm_inference(node, context, arguments[7])
        del arguments[3:5]
    _, weight, bias, _, _, eps = arguments
    return _norm(node, context, "batch_norm", (weight, bias), eps=eps, scalars=_planes(node))


@lowers("aten._native_batch_norm_legit_no_training.default")
def lower_batch_norm_inference(node: fx.Node, context: Context) -> Lowered:
    """Normalisation per channel by the running statistics."""
    return _batch_norm_inference(node, context, node.args[6])


def _batch_norm_inference(node: fx.Node, context: Context, eps: float) -> Lowered:
    _, weight, bias, mean, variance = node.args[:5]
    statistics = (("mean", mean), ("variance", variance))
    return _norm(
        node,
        context,
        "batch_norm_inference",
        (weight, bias),
        eps=eps,
        scalars=_planes(node),
        statistics=statistics,
    )


def _planes(node: fx.Node) -> Scalars:
    name = node.args[0].name

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        batch, channels, *pixels = meta(nodes[name]).shape
        return {"batch": batch, "channels": channels, "pixels": prod(pixels)}

    return scalars


def _norm(
    node: fx.Node,
    context: Context,
    template: str,
    affine: tuple[Any, Any],
    *,
    eps: float,
    scalars: Scalars,
    statistics: tuple[tuple[str, fx.Node], ...] = (),
) -> Lowered:
    x = node.args[0]
    given = [(name, p) for name, p in zip(("weight", "bias"), affine, strict=True) if p is not None]
    output = context.only_output(node)
    for tensor in (x, output, *(p for _, p in given), *(p for _, p in statistics)):
        if meta(tensor).dtype != "float32":
            raise UnsupportedError(f"{node.target} of {meta(tensor).dtype}")
    values: dict[str, str | Callable[..., str]] = {
        "EPS": literal(float(eps), "float32"),
        "AFFINE_POINTERS": "".join(f"const float* __restrict__ {name}, " for name, _ in given),
        "AFFINE_HOST": "".join(f"const float* {name}, " for name, _ in given),
        "AFFINE_ARGUMENTS": "".join(f"{name}, " for name, _ in given),
        "AFFINE": _affine(*(p is not None for p in affine)),
    }
    return Lowered(
        template=template,
        sources=styled(template, values, *_STYLES.get(template, ())),
        operands=(
            ("x", x.name),
            *((name, p.name) for name, p in given),
            *((name, p.name) for name, p in statistics),
        ),
        outputs=(("y", output.name),),
        nodes=(node.name, output.name),
        scalars=scalars,
    )


def _affine(has_weight: bool, has_bias: bool) -> Callable[..., str]:
    def expression(value: str, index: str) -> str:
        scaled = f"{value} * weight[{index}]" if has_weight else value
        return f"{scaled} + bias[{index}]" if has_bias else scaled

    return expression
