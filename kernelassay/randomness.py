"""Dropout as a mask that PyTorch draws and a product that a kernel computes.

A traced ``native_dropout`` draws anew whenever it runs, so a graph that holds one has no single
correct output. Split, its mask depends on the seed alone: it is drawn once per input, lies before
every kernel, and a kernel takes it as an operand. Eager ``nn.Dropout`` draws the same mask from the
same seed on a CPU, in float32 and in float64.
"""

from __future__ import annotations

import torch
from torch import fx

from kernelassay.errors import UnsupportedError

DROPOUT = "aten.native_dropout.default"
MASK = "aten.bernoulli.p"

aten = torch.ops.aten


def split_dropouts(graph: fx.Graph) -> bool:
    """Replace each active dropout by ``x * mask * scale``; returns whether there was one.

    Raises:
        UnsupportedError: an operand is not contiguous (its mask would be drawn in another order),
            or the mask itself is used.
    """
    found = [node for node in graph.nodes if is_active_dropout(node)]
    for node in found:
        _split(graph, node)
    return bool(found)


def is_active_dropout(node: fx.Node) -> bool:
    """Whether ``node`` is a dropout that draws."""
    return str(node.target) == DROPOUT and node.args[1] != 0.0 and node.args[2] is not False


def _split(graph: fx.Graph, node: fx.Node) -> None:
    x, probability = node.args[0], float(node.args[1])
    value = x.meta["val"]
    if not value.is_contiguous():
        raise UnsupportedError("dropout of a tensor that is not contiguous")
    results = {int(user.args[1]): user for user in node.users}
    if set(results) != {0}:
        raise UnsupportedError("the mask of a dropout is used")
    scale = 1.0 / (1.0 - probability) if probability < 1.0 else 0.0
    keywords = {"dtype": value.dtype, "device": value.device}
    with graph.inserting_before(node):
        # The mask must not depend on x, or a fault before the dropout would draw it again.
        blank = graph.call_function(aten.full.default, (list(value.shape), 0.0), keywords)
        mask = graph.call_function(aten.bernoulli.p, (blank, 1.0 - probability))
        kept = graph.call_function(aten.mul.Tensor, (x, mask))
        scaled = graph.call_function(aten.mul.Tensor, (kept, scale))
    for made in (blank, mask, kept, scaled):
        made.meta["val"] = value
    results[0].replace_all_uses_with(scaled)
    graph.erase_node(results[0])
    graph.erase_node(node)
