"""A thread's number taken apart into its warp and its lane."""

from __future__ import annotations

import re

from tree_sitter import Node

from kernelassay.mutation.nodes import field, names_in, operator
from kernelassay.mutation.sites import bare, number
from kernelassay.mutation.tree import KernelTree


def _is_warp_size(tree: KernelTree, node: Node) -> bool:
    if number(tree, node) == 32.0:
        return True
    text = tree.text(node)
    if not re.fullmatch(r"[A-Za-z_]\w*", text):
        return False
    if text == "warpSize":
        return True
    return re.search(rf"\b{text}\s*=?\s*\(?32\b", tree.source) is not None


def _is_thread_number(tree: KernelTree, node: Node) -> bool:
    """Whether an expression is a thread's number: no loop counter that starts from one."""
    if "threadIdx" in names_in(tree, node):
        return True
    inner = bare(node)
    declared = tree.declared(inner) if inner.type == "identifier" else None
    if declared is None or declared.value is None:
        return False
    parent = tree.parent(declared.node)
    counter = parent is not None and parent.type == "for_statement"
    return not counter and "threadIdx" in names_in(tree, declared.value)


def lane_of(tree: KernelTree, node: Node) -> str | None:
    """The text of ``t`` in ``t & 31`` or ``t % 32``, else None."""
    right = field(node, "right")
    if not _is_thread_number(tree, field(node, "left")):
        return None
    lane = operator(tree, node) == "&" and number(tree, right) == 31.0
    if lane or (operator(tree, node) == "%" and _is_warp_size(tree, right)):
        return tree.text(bare(field(node, "left")))
    return None


def warp_of(tree: KernelTree, node: Node) -> str | None:
    """The text of ``t`` in ``t >> 5`` or ``t / 32``, else None."""
    right = field(node, "right")
    if not _is_thread_number(tree, field(node, "left")):
        return None
    warp = operator(tree, node) == ">>" and number(tree, right) == 5.0
    if warp or (operator(tree, node) == "/" and _is_warp_size(tree, right)):
        return tree.text(bare(field(node, "left")))
    return None


def is_warp_split(tree: KernelTree, node: Node) -> bool:
    """Whether a binary expression takes a thread number apart into lane or warp."""
    return lane_of(tree, node) is not None or warp_of(tree, node) is not None
