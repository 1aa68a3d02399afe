"""The parts of a syntax node that every rule asks for: fields, operators, calls, names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tree_sitter import Node

if TYPE_CHECKING:
    from kernelassay.mutation.tree import KernelTree


def field(node: Node, name: str) -> Node:
    """The child of ``node`` under a field that the grammar guarantees."""
    found = node.child_by_field_name(name)
    assert found is not None, f"{node.type} has no {name}"
    return found


def operator(tree: KernelTree, node: Node) -> str:
    """The operator of a binary, unary, update or assignment expression; else empty."""
    found = node.child_by_field_name("operator")
    return tree.text(found) if found is not None else ""


def callee(tree: KernelTree, node: Node) -> str:
    """The name of the called function, without template arguments; empty for no call."""
    if node.type != "call_expression":
        return ""
    function = field(node, "function")
    name = function.child_by_field_name("name") if function.type == "template_function" else None
    return tree.text(name if name is not None else function)


def arguments(node: Node) -> list[Node]:
    """The arguments of a call."""
    found = node.child_by_field_name("arguments")
    return list(found.named_children) if found is not None else []


def calls(tree: KernelTree, *names: str, within: Node | None = None) -> Iterator[Node]:
    """Every call of one of ``names`` in device code (or ``within`` a node), in source order."""
    return (n for n in tree.nodes("call_expression", within=within) if callee(tree, n) in names)


def names_in(tree: KernelTree, node: Node) -> set[str]:
    """The identifiers that occur in ``node``."""
    return {tree.text(n) for n in tree.nodes("identifier", within=node)}


def inside(node: Node, around: Node) -> bool:
    """Whether ``node`` lies in ``around``, or is it."""
    return around.start_byte <= node.start_byte and node.end_byte <= around.end_byte


def reads_memory(tree: KernelTree, node: Node) -> bool:
    """Whether something in ``node`` may read memory: a subscript, a dereference, a call."""
    kinds = ("subscript_expression", "pointer_expression", "call_expression")
    return next(tree.nodes(*kinds, within=node), None) is not None
