"""Scaled dot-product attention as one operator, plain or causal, with or without a mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import Scalar
from kernelassay.substrate.lowering import Context, Lowered, lowers
from kernelassay.substrate.operands import (
    argument,
    int_argument,
    optional_pointer,
    require_float32,
    require_shared,
    styled,
)
from kernelassay.trace import meta

# The shared arrays of the flash style beside its output rows: queries, keys, weights; in bytes.
FLASH_STATIC = 4 * (8 * 32 + 32 * 33 + 8 * 32)


@lowers("aten.scaled_dot_product_attention.default")
def lower_attention(node: fx.Node, context: Context) -> Lowered:
    """Attention over [..., length, width] with equal leading dimensions and the default scale."""
    q, k, v = node.args[:3]
    require_float32(node, q, k, v)
    if argument(node, 4, "dropout_p", 0.0):
        raise UnsupportedError(f"{node.target} with dropout")
    if node.kwargs.get("scale") is not None or node.kwargs.get("enable_gqa"):
        raise UnsupportedError(f"{node.target} with a scale or grouped queries")
    mask = argument(node, 3, "attn_mask")
    causal = bool(argument(node, 5, "is_causal", False))
    operands = [("q", q.name), ("k", k.name), ("v", v.name)]
    if isinstance(mask, fx.Node):
        operands.append(("mask", mask.name))
    keys = _mask_keys(node, mask if isinstance(mask, fx.Node) else None, causal)

    def scalars(nodes: Mapping[str, fx.Node]) -> Mapping[str, Scalar]:
        shape, width = meta(nodes[q.name]).shape, meta(nodes[v.name]).shape[-1]
        if {meta(nodes[n.name]).shape[:-2] for n in (k, v)} != {shape[:-2]}:
            raise UnsupportedError(f"{node.target} with broadcast heads")
        require_shared("attention", max(4 * (shape[-1] + width), FLASH_STATIC + 4 * 8 * width))
        int_argument(prod(shape[:-1]), "the number of query rows")
        return {
            "heads": prod(shape[:-2]),
            "queries": shape[-2],
            "keys": meta(nodes[k.name]).shape[-2],
            "width": shape[-1],
            "value_width": width,
        }

    return Lowered(
        template="attention",
        sources=styled("attention", keys, "flash"),
        operands=tuple(operands),
        outputs=(("y", node.name),),
        nodes=(node.name,),
        scalars=scalars,
    )


def _mask_keys(
    node: fx.Node, mask: fx.Node | None, causal: bool
) -> dict[str, str | Callable[[str], str]]:
    def causal_score(score: str) -> str:
        return f"j > i ? -INFINITY : {score}" if causal else score

    if mask is None:
        return {**optional_pointer("MASK", "mask", False), "SCORE": causal_score}
    if causal:
        raise UnsupportedError(f"{node.target} both causal and masked")
    scores = (*meta(node.args[0]).shape[:-1], meta(node.args[1]).shape[-2])
    if meta(mask).shape == scores:
        element = "mask[(head * queries + i) * keys + j]"
    elif meta(mask).shape == scores[-2:]:
        element = "mask[(long long)i * keys + j]"
    else:
        raise UnsupportedError(f"{node.target} with a mask of shape {meta(mask).shape}")
    if meta(mask).dtype == "bool":
        pointer = optional_pointer("MASK", "mask", True, "const unsigned char")
        return {**pointer, "SCORE": lambda score: f"{element} ? {score} : -INFINITY"}
    require_float32(node, mask)
    pointer = optional_pointer("MASK", "mask", True, "const float")
    return {**pointer, "SCORE": lambda score: f"{score} + {element}"}
