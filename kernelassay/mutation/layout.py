"""Flattened subscripts taken apart: the sum of coordinates, each with its stride.

``((n * C + c) * H + h) * W + w`` has the coordinates n, c, h, w, outermost first; so has
``n * C * H * W + c * H * W + h * W + w``. *Sizes* are the integer parameters of a function and
the locals computed from nothing but sizes and constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernelassay.mutation.nodes import field, names_in, operator
from kernelassay.mutation.sites import bare, binaries
from kernelassay.mutation.tree import KernelTree

_GEOMETRY = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
#: Names of a window's geometry, which no address is strided by.
WINDOW = re.compile(r"(^|_)(pad|stride|dil)", re.I)
_NO_EXTENT = re.compile(r"(^|_)(pad|stride|dil|ignore|index|offset|seed|start|groups?$)", re.I)
_STEM = re.compile(r"^(.*?)_?([a-zA-Z]|\d+)$")


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One term of a flattened index.

    ``term`` is the whole term, ``value`` the coordinate itself without cast or stride, and
    ``sum`` the addition it is an operand of (None when it stands alone).
    """

    term: Node
    value: Node
    sum: Node | None


def terms(tree: KernelTree, node: Node) -> list[Node]:
    """The operands of nested additions, left to right; casts around a sum are not opened."""
    node = bare(node)
    if node.type == "binary_expression" and operator(tree, node) == "+":
        return [*terms(tree, field(node, "left")), field(node, "right")]
    return [node]


def factors(tree: KernelTree, node: Node) -> list[Node]:
    """The operands of nested multiplications, left to right."""
    if node.type == "binary_expression" and operator(tree, node) == "*":
        return [*factors(tree, field(node, "left")), field(node, "right")]
    return [node]


def uncast(node: Node) -> Node:
    """The expression inside parentheses and C casts."""
    while True:
        inner = bare(node)
        if inner.type == "cast_expression":
            inner = field(inner, "value")
        if inner.id == node.id:
            return node
        node = inner


def coordinates(tree: KernelTree, index: Node, around: Node | None = None) -> list[Coordinate]:
    """The coordinates of a flattened index, outermost first."""
    found: list[Coordinate] = []
    for term in terms(tree, index):
        above = tree.parent(term)
        inside = above is not None and above.type == "binary_expression"
        sum_ = above if inside and above and operator(tree, above) == "+" else around
        first = uncast(factors(tree, term)[0])
        nested = first.type == "binary_expression" and operator(tree, first) == "+"
        if nested and len(factors(tree, term)) > 1:
            found.extend(coordinates(tree, first))
        else:
            found.append(Coordinate(term, first, sum_))
    return found


def is_geometric(tree: KernelTree, node: Node) -> bool:
    """Whether an expression reads the launch geometry itself (``blockDim.x``)."""
    return bool(names_in(tree, node) & _GEOMETRY)


def index_roots(tree: KernelTree) -> Iterator[Node]:
    """The whole expressions that are addresses or parts of them, in source order.

    Subscripts, pointer offsets, initialisers of index variables and values assigned to them.
    """
    for node in tree.nodes():
        match node.type:
            case "subscript_argument_list":
                yield from node.named_children[:1]
            case "binary_expression":
                left, right = field(node, "left"), field(node, "right")
                if tree.kind(node) == "pointer" and tree.kind(left) == "pointer":
                    yield right
            case "init_declarator" | "assignment_expression":
                name = "value" if node.type == "init_declarator" else "right"
                value = node.child_by_field_name(name)
                if value is not None and tree.is_integer(value) and tree.is_index(value):
                    yield value


def sizes(tree: KernelTree, function: Node) -> list[str]:
    """The names of a function's sizes: integer parameters, then locals computed from them."""
    known = list(tree.size_parameters(function))
    variable = {
        tree.text(field(node, "left"))
        for node in tree.nodes("assignment_expression", within=function)
    } | {
        tree.text(field(node, "argument"))
        for node in tree.nodes("update_expression", within=function)
    }
    for node in tree.nodes("init_declarator", within=function):
        declarator, value = field(node, "declarator"), node.child_by_field_name("value")
        if value is None or declarator.type != "identifier" or not tree.is_integer(value):
            continue
        used, name = names_in(tree, value), tree.text(declarator)
        locals_ = {
            n for n in used if tree.declared_type(function, n) is not None and n not in known
        }
        if used & set(known) and not locals_ and not used & _GEOMETRY and name not in variable:
            known.append(name)
    return known


def visible(tree: KernelTree, node: Node, candidates: list[str]) -> list[str]:
    """The sizes of ``candidates`` that are declared before ``node`` in a scope around it."""
    found = []
    for name in candidates:
        for declared in tree.declarations(name):
            after = declared.declarator.end_byte <= node.start_byte
            if after and declared.scope[0] <= node.start_byte < declared.scope[1]:
                found.append(name)
                break
    return found


def sibling(name: str, candidates: list[str]) -> str | None:
    """The size most easily mistaken for ``name``.

    One with the same stem (``in_h``, ``in_w``), else the next candidate, cyclically, that is
    the extent of something; a window's stride is no extent. None when there is no other.
    """
    others = [c for c in candidates if c != name]
    if not others:
        return None
    stem = _STEM.match(name)
    if stem and stem.group(1):
        for other in others:
            match = _STEM.match(other)
            if match and match.group(1) == stem.group(1):
                return other
    position = candidates.index(name) if name in candidates else -1
    following = [*candidates[position + 1 :], *candidates[: max(position, 0)]]
    extents = [c for c in following if not _NO_EXTENT.search(c)]
    return extents[0] if extents and not _NO_EXTENT.search(name) else None


def loop_variable(tree: KernelTree, loop: Node) -> tuple[str, Node] | None:
    """The counter of ``for (...; v < bound; ...)`` and its bound, also within ``a && v < b``."""
    condition = loop.child_by_field_name("condition")
    if condition is None:
        return None
    for node in binaries(tree, "<", "<=", within=condition):
        left = field(node, "left")
        if left.type == "identifier":
            return tree.text(left), field(node, "right")
    return None
