"""What the terms of a fused kernel are read from: bias, scale, residual, or the data."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.match import (
    LOOPS,
    binary,
    definition,
    is_load,
    number,
    pointer_root,
    resolve,
    same,
    stores,
    strip,
    subscript,
    updates,
)
from kernelassay.mutation.nodes import arguments, calls, field
from kernelassay.mutation.tree import KernelTree

BIAS = re.compile(r"bias|beta|shift")
_SCALE = re.compile(r"scale|gamma|weight|alpha|multiplier|factor|gain|slope")
RESIDUAL = re.compile(r"resid|skip|shortcut|identity")
_EPS = re.compile(r"eps", re.IGNORECASE)


# -- what a term is ----------


def role(tree: KernelTree, node: Node) -> str:
    """What a summand or factor is read from.

    ``broadcast`` (a load whose index is not the output's), ``aligned`` (a load at the output's
    own index), ``scalar`` (a float parameter of a kernel), ``constant`` (a literal), else empty.
    A parameter of a ``__device__`` function has the role of what its first call passes.
    """
    source = strip(node)
    value = definition(tree, source)
    spelled = strip(value) if value is not None else source
    if number(tree, spelled) is not None:
        return "constant"
    if spelled.type == "identifier":
        return _parameter_role(tree, spelled)
    if spelled.type == "conditional_expression":
        spelled = strip(field(spelled, "consequence"))
    if spelled.type == "field_expression":  # a lane of a vector load
        lanes = resolve(tree, field(spelled, "argument"))
        is_vector = tree.base_type(lanes) == "float4" and bool(pointer_root(tree, lanes))
        return "aligned" if is_vector and is_output_index(tree, lanes) else ""
    if not is_load(tree, spelled):
        return ""
    return "aligned" if is_output_index(tree, spelled) else "broadcast"


def _parameter_role(tree: KernelTree, identifier: Node) -> str:
    function = tree.function(identifier)
    parameters = tree.parameters(function)
    place = next((i for i, p in enumerate(parameters) if p.name == tree.text(identifier)), None)
    if place is None or parameters[place].kind not in ("float", "double"):
        return ""
    if function in tree.kernels:
        return "scalar"
    for found in calls(tree, tree.name(function)):
        if tree.function(found) in tree.kernels and len(arguments(found)) > place:
            return role(tree, arguments(found)[place])
    return ""


def is_output_index(tree: KernelTree, load: Node) -> bool:
    """Whether a load reads at the very place that its kernel stores to."""
    function, index = tree.function(load), subscript(tree, load)
    if index is None:
        return False
    own = [
        subscript(tree, s.target) for s in stores(tree) if tree.function(s.node).id == function.id
    ]
    return any(other is not None and same(tree, index, other) for other in own)


def name_of(tree: KernelTree, node: Node) -> str:
    """The pointer or variable a term is named after."""
    node = strip(node)
    if node.type == "subscript_expression":
        return pointer_root(tree, node)
    return tree.text(node) if node.type == "identifier" else ""


def is_bias(tree: KernelTree, node: Node) -> bool:
    """Whether a summand is a broadcast or scalar operand, or is called a bias."""
    name, kind = name_of(tree, node), role(tree, node)
    if _EPS.search(name):
        return False
    return kind in ("broadcast", "scalar") or bool(BIAS.search(name) and kind != "constant")


def is_scale(tree: KernelTree, node: Node) -> bool:
    """Whether a factor is a broadcast or scalar operand, or is called a scale."""
    return role(tree, node) in ("broadcast", "scalar") or bool(_SCALE.search(name_of(tree, node)))


def in_sum(tree: KernelTree, node: Node) -> bool:
    """Whether ``node`` belongs to what a loop sums up: an operand, no fused term."""
    for update in updates(tree, tree.function(node)):
        value = field(update.node, "right")
        inside = value.start_byte <= node.start_byte and node.end_byte <= value.end_byte
        if inside and tree.enclosing(update.node, *LOOPS):
            return True
    return False


def fused(tree: KernelTree, symbol: str) -> Iterator[tuple[Node, Node, Node]]:
    """``(expression, kept, dropped)`` for both sides of float ``symbol`` outside of loop sums."""
    for node in tree.nodes("binary_expression"):
        sides = binary(tree, node, symbol)
        if not sides or not tree.is_float(node) or in_sum(tree, node):
            continue
        left, right = sides
        yield node, left, right
        yield node, right, left


def is_summed(tree: KernelTree, target: Node) -> bool:
    """Whether a variable is an accumulator."""
    return any(u.name == tree.text(target) for u in updates(tree, tree.function(target)))
