"""The indexing family, in programs, blocks and launches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import libcst as cst

from kernelassay.mutation.rule import Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import ROWS, body, edited, module, rule
from kernelassay.mutation.triton.match import (
    atom,
    binaries,
    binary,
    lift,
    names,
    put,
    replace,
    value,
)
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import values_of

# -- programs and blocks ------------------------------------------------------------------------


def _program_axis_swap(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("program_id"):
        axis = value(call, 0, "axis")
        if axis is not None and tree.text(axis) in ("0", "1"):
            yield mutation(replace(tree, axis, "1" if tree.text(axis) == "0" else "0"))


def is_program(tree: TritonTree, node: cst.BaseExpression) -> bool:
    """Whether an expression is the number of a program, or computed from no other index."""
    if any(tree.calls("arange", within=node)):
        return False
    if any(tree.calls("program_id", within=node)):
        return True
    values = values_of(tree, node)
    assigned = [a for name in names(tree, node) for a in values.assigned(name)]
    return any(not a.is_loop_variable and is_program(tree, a.value) for a in assigned if not a.sign)


def block_products(tree: TritonTree) -> Iterator[tuple[cst.BinaryOperation, cst.BaseExpression]]:
    """Products ``pid * BLOCK`` with their factor that is a block's size."""
    for node in binaries(tree, "*"):
        if values_of(tree, node).kind(node) != "int":
            continue
        for factor, other in ((node.right, node.left), (node.left, node.right)):
            constant = tree.function(node).constexprs
            if is_program(tree, other) and set(names(tree, factor)) & constant:
                yield node, factor
                break


def _drop_block_offset(tree: TritonTree) -> Iterator[Mutation]:
    for node, _ in block_products(tree):
        outer: Any = tree.parent(node)
        if binary(outer, "+"):
            yield mutation(lift(tree, outer, outer.right if outer.left is node else outer.left))


def _block_offset_plus_one(tree: TritonTree) -> Iterator[Mutation]:
    for node, _ in block_products(tree):
        outer: Any = tree.parent(node)
        text = f"{tree.text(node)} + 1"
        # Inside a sum no parentheses are needed on the left.
        left = binary(outer, "+") and outer.left is node
        yield mutation(replace(tree, node, text) if left else put(tree, node, text))


def _block_offset_short(tree: TritonTree) -> Iterator[Mutation]:
    for _, factor in block_products(tree):
        yield mutation(put(tree, factor, f"{atom(tree, factor)} - 1"))


def _drop_block_factor(tree: TritonTree) -> Iterator[Mutation]:
    for node, factor in block_products(tree):
        yield mutation(lift(tree, node, node.left if node.right is factor else node.right))


def _block_confusion(tree: TritonTree) -> Iterator[Mutation]:
    for node, factor in block_products(tree):
        if isinstance(factor, cst.Name):
            function, values = tree.function(node), values_of(tree, node)
            sizes = [p for p in function.parameters if p in function.constexprs & values.indices]
            yield from (mutation(replace(tree, factor, s)) for s in sizes if s != factor.value)


def _arange_shift(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("arange"):
        yield mutation(put(tree, call, f"1 + {tree.text(call)}"))


# -- the launch ---------------------------------------------------------------------------------


def _argument_swap(tree: TritonTree) -> Iterator[Mutation]:
    for site in tree.launches:
        values = values_of(tree, site.kernel.node.body)
        given = []
        for arg, parameter in zip(site.arguments, site.kernel.parameters, strict=False):
            if arg.star or arg.keyword is not None:
                break
            given.append((arg.value, values.kind(cst.Name(parameter))))
        for (one, kind), (other, kind_of_other) in pairwise(given):
            if kind == kind_of_other and tree.text(one) != tree.text(other):
                yield mutation(
                    replace(tree, one, tree.text(other)), replace(tree, other, tree.text(one))
                )


OFFSETS = "offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"


COPY = f"{OFFSETS}tl.store(y_ptr + offs, tl.load(x_ptr + offs))"


TILE = (
    "rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)\n"
    "cols = tl.arange(0, BLOCK)\n"
    "x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :])\n"
    "mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]\n"
)


BLOCKS: tuple[Rule, ...] = (
    rule(
        "program-axis-swap",
        "indexing",
        "`tl.program_id(0)` to `tl.program_id(1)` and back",
        "the axes of the grid confused",
        _program_axis_swap,
        body(COPY, ("program_id(0)", "program_id(1)")),
        body("i = tl.program_id(axis=1)\ntl.store(y_ptr + i, 1.0)", ("axis=1", "axis=0")),
    ),
    rule(
        "drop-block-offset",
        "indexing",
        "`pid * BLOCK + e` to `e`",
        "every program works on the first block",
        _drop_block_offset,
        body(COPY, ("tl.program_id(0) * BLOCK + ", "")),
        body(
            f"pid = tl.program_id(0)\nstart = BLOCK * pid\n{COPY}",
            ("tl.program_id(0) * BLOCK + ", ""),
        ),
    ),
    rule(
        "block-offset-plus-one",
        "indexing",
        "`pid * BLOCK` to `pid * BLOCK + 1`",
        "blocks that start one element late",
        _block_offset_plus_one,
        body(COPY, ("* BLOCK +", "* BLOCK + 1 +")),
    ),
    rule(
        "block-offset-short",
        "indexing",
        "`pid * BLOCK` to `pid * (BLOCK - 1)`",
        "blocks that overlap, and leave out the end",
        _block_offset_short,
        body(COPY, ("* BLOCK", "* (BLOCK - 1)")),
    ),
    rule(
        "drop-block-factor",
        "indexing",
        "`pid * BLOCK` to `pid`",
        "a program's number taken for its first element",
        _drop_block_factor,
        body(COPY, ("tl.program_id(0) * BLOCK", "tl.program_id(0)")),
    ),
    rule(
        "block-confusion",
        "indexing",
        "the `BLOCK` of `pid * BLOCK` to another block size of the kernel",
        "BLOCK_N where BLOCK_M belongs: right while the two are equal",
        _block_confusion,
        body(TILE, ("(0) * ROWS", "(0) * BLOCK"), params=ROWS),
    ),
    rule(
        "arange-shift",
        "indexing",
        "`tl.arange(0, B)` to `1 + tl.arange(0, B)`",
        "a range that starts at 1",
        _arange_shift,
        body(COPY, ("tl.arange(0, BLOCK)", "(1 + tl.arange(0, BLOCK))")),
    ),
    rule(
        "argument-swap",
        "indexing",
        "two neighbouring arguments of one kind exchanged at the launch",
        "arguments in the wrong order",
        _argument_swap,
        edited(module(COPY), ("k[(4,)](x_ptr, y_ptr,", "k[(4,)](y_ptr, x_ptr,")),
    ),
)
