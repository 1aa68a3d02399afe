"""Texts and edits that several boundary and synchronization rules share."""

from __future__ import annotations

from tree_sitter import Node

from kernelassay.mutation.bounds import BoundTest
from kernelassay.mutation.extents import shifted
from kernelassay.mutation.nodes import field
from kernelassay.mutation.rule import Edit
from kernelassay.mutation.tree import KernelTree, delete, replace


def moved(tree: KernelTree, test: BoundTest, *, loose: bool) -> str:
    """The comparison moved by one: to let one more index through, or one fewer."""
    symbol = test.operator
    strict = symbol in ("<", ">")
    # A strict test gains one index by becoming `<=`; a failing `>=` gains one by becoming `>`.
    if loose == test.inside:
        if strict:
            return test.text(tree, symbol + "=", tree.text(test.bound))
    elif not strict:
        return test.text(tree, symbol[0], tree.text(test.bound))
    by = 1 if loose == test.upper else -1
    return test.text(tree, symbol, shifted(tree, test.bound, by))


def without_operand(tree: KernelTree, operand: Node) -> Edit | None:
    """The edit that takes one operand out of its ``&&`` / ``||`` chain."""
    inner, outer = operand, tree.parent(operand)
    while outer is not None and outer.type == "parenthesized_expression":
        inner, outer = outer, tree.parent(outer)
    if outer is None or outer.type != "binary_expression":
        return None
    left, right = field(outer, "left"), field(outer, "right")
    return replace(outer, tree.text(right if left.id == inner.id else left))


def without_statement(tree: KernelTree, statement: Node) -> Edit:
    """The edit that removes a statement with the ``#pragma`` lines that belong to it."""
    outer = tree.parent(statement)
    if outer is None or outer.type not in ("compound_statement", "case_statement"):
        return replace(statement, ";")
    siblings = list(outer.children)
    position = next(i for i, c in enumerate(siblings) if c.id == statement.id)
    start = statement.start_byte
    while position > 0 and siblings[position - 1].type == "preproc_call":
        position -= 1
        start = siblings[position].start_byte
    return delete((start, statement.end_byte))
