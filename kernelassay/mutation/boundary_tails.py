"""Boundary rules on the remainder part of vectorised and unrolled loops."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.bounds import Guard, Loop, as_guard, as_loop, bound_test, flatten, loops
from kernelassay.mutation.examples import example
from kernelassay.mutation.extents import bare, extents, is_macro_name, literal
from kernelassay.mutation.nodes import arguments, callee, field, operator
from kernelassay.mutation.rewrites import without_operand, without_statement
from kernelassay.mutation.rule import Edit, Mutation, Rule
from kernelassay.mutation.tree import KernelTree, mutation, replace

# A size rounded down: `n / 4 * 4`, `(n % 4 == 0 ? n / 4 : 0) * 4`,
# `4 * (n / 4)`, `n >> 2 << 2`, `n & ~3`, `n - n % 4`.
_ROUNDED = re.compile(
    r"/\(?(\w+)\b[^*]*\*\(?\1\b|\b(\w+)\*\(+[^()]*/\(?\2\b|>>(\w+)\)*<<\3\b|&\(?~|-\(?[^()%]*%"
)
_REMAINDER = re.compile(r"%\(?\w+\)?$|%\(?\w+\)|&3\b|&7\b|&1\b|-\(*[^()]*\(?/\w+\)*\*\w+")


def is_tail_guard(tree: KernelTree, guard: Guard) -> bool:
    """Whether a guard protects lanes past the last whole vector.

    ``i + 3 < n`` (one constant added to an index) and ``i < n % 4`` are such guards.
    """
    if len(guard.operands) != 1 or not guard.pure or not guard.tests[0].upper:
        return False
    test = guard.tests[0]
    index = bare(test.index)
    added = index.type == "binary_expression" and operator(tree, index) == "+"
    if added and (literal(tree, field(index, "right")) or 0) >= 1:
        return True
    return _REMAINDER.search(extents(tree).expand(test.bound)) is not None


def _multiple_test(tree: KernelTree, node: Node) -> str | None:
    """The operator of ``n % 4 == 0`` (a size and a constant), or None for another node."""
    if node.type != "binary_expression" or operator(tree, node) not in ("==", "!="):
        return None
    if literal(tree, field(node, "right")) != 0:
        return None
    remainder = bare(field(node, "left"))
    if remainder.type != "binary_expression" or operator(tree, remainder) not in ("%", "&"):
        return None
    size, divisor = field(remainder, "left"), bare(field(remainder, "right"))
    known = extents(tree)
    width = literal(tree, known.resolve(divisor)) is not None or is_macro_name(tree, divisor)
    return operator(tree, node) if width and known.fixed(size) else None


def _tail_drop(tree: KernelTree) -> Iterator[Mutation]:
    by_node = {loop.node.id: loop for loop in loops(tree)}
    for node in tree.nodes("for_statement", "if_statement", "while_statement"):
        if node.type == "for_statement":
            if node.id in by_node and _is_tail_loop(tree, by_node[node.id]):
                yield mutation(without_statement(tree, node))
        elif node.type == "while_statement":
            if _continues_loop(tree, node):
                yield mutation(without_statement(tree, node))
        elif (edit := _dropped_branch(tree, node)) is not None:
            yield mutation(edit)


def _is_tail_loop(tree: KernelTree, loop: Loop) -> bool:
    if loop.motion != "up" or loop.test is None:
        return False
    if loop.start is None:
        return _continues_loop(tree, loop.node)
    start = extents(tree).expand(loop.start)
    return _ROUNDED.search(start) is not None


def _continues_loop(tree: KernelTree, node: Node) -> bool:
    """Whether a loop goes on with the variable of a loop right before it."""
    condition = node.child_by_field_name("condition")
    if condition is None or node.child_by_field_name("initializer") is not None:
        return False
    before = node.prev_named_sibling
    while before is not None and before.type in ("comment", "preproc_call"):
        before = before.prev_named_sibling
    if before is None or before.type not in ("for_statement", "while_statement"):
        return False
    earlier = before.child_by_field_name("condition")
    if earlier is None:
        return False
    tested = {tree.text(n) for n in tree.nodes("identifier", within=condition)}
    written = {
        tree.text(field(n, "left" if n.type == "assignment_expression" else "argument"))
        for n in tree.nodes("assignment_expression", "update_expression", within=before)
    }
    return bool(tested & written & {tree.text(n) for n in tree.nodes("identifier", within=earlier)})


def _dropped_branch(tree: KernelTree, node: Node) -> Edit | None:
    alternative = node.child_by_field_name("alternative")
    condition = field(node, "condition").child_by_field_name("value")
    if condition is None:
        return None
    multiples = [_multiple_test(tree, operand) for operand in flatten(tree, condition, "&&")]
    guard = as_guard(tree, node)
    tail = guard is not None and is_tail_guard(tree, guard)
    if alternative is not None:
        # The vector path is taken where it fits; the other branch is the remainder.
        return replace(alternative, "else {}") if tail or "==" in multiples else None
    of_remainder = (
        guard is not None
        and tail
        and not guard.exits
        and _REMAINDER.search(extents(tree).expand(guard.tests[0].bound)) is not None
    )
    return without_statement(tree, node) if of_remainder or "!=" in multiples else None


def _tail_mask_full(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes(
        "if_statement",
        "conditional_expression",
        "for_statement",
        "call_expression",
        "binary_expression",
    ):
        if node.type == "binary_expression":
            if _multiple_test(tree, node) == "==":
                yield mutation(replace(node, "true"))
        elif node.type == "call_expression":
            if (width := vector_width(tree, node)) is not None:
                yield mutation(replace(node, width))
        elif node.type == "for_statement":
            yield from (mutation(edit) for edit in _masks_of_loop(tree, node))
        else:
            guard = as_guard(tree, node)
            if guard is not None and is_tail_guard(tree, guard):
                passed = "true" if guard.tests[0].inside else "false"
                yield mutation(replace(guard.tests[0].node, passed))


def vector_width(tree: KernelTree, node: Node) -> str | None:
    """``4`` for ``min(4, n - i)``."""
    given = arguments(node)
    if callee(tree, node) != "min" or len(given) != 2:
        return None
    known = extents(tree)
    for width, rest in (given, reversed(given)):
        left = bare(rest)
        difference = left.type == "binary_expression" and operator(tree, left) == "-"
        if literal(tree, known.resolve(width)) is None and not is_macro_name(tree, width):
            continue
        if difference and known.fixed(field(left, "left")) and not known.fixed(left):
            return tree.text(width)
    return None


def _masks_of_loop(tree: KernelTree, node: Node) -> Iterator[Edit]:
    """``for (j = 0; j < 4 && i + j < n; ++j)``: the test that is not the loop's own goes."""
    loop = as_loop(tree, node)
    condition = node.child_by_field_name("condition")
    if loop is None or loop.test is None or condition is None:
        return
    for operand in flatten(tree, condition, "&&"):
        test = bound_test(tree, operand, inside=True)
        if test is None or operand.id == loop.test.node.id:
            continue
        edit = without_operand(tree, operand)
        if edit is not None:
            yield edit


_TAIL = """    int n4 = n / 4;
    for (int i = threadIdx.x; i < n4; i += blockDim.x)
        ((float4*)y)[i] = ((const float4*)x)[i];"""
_UNROLLED = """    int i = 0;
    for (; i + 3 < n; i += 4) {}"""


RULES = (
    Rule(
        "tail-drop",
        "boundary",
        "the remainder part of a vectorised or unrolled loop removed",
        "the last n % 4 elements are never handled",
        _tail_drop,
        (
            example(
                (
                    f"{_TAIL}\n    for (int i = n4 * 4 + threadIdx.x; i < n; i += blockDim.x)"
                    " y[i] = x[i];"
                ),
                (f"{_TAIL}\n    "),
            ),
            example(
                (f"{_UNROLLED}\n    for (; i < n; ++i) y[i] = x[i];"),
                (f"{_UNROLLED}\n    "),
            ),
            example(
                ("if (n % 4 == 0) { y[0] = x[0]; } else { y[1] = x[1]; }"),
                ("if (n % 4 == 0) { y[0] = x[0]; } else {}"),
            ),
        ),
    ),
    Rule(
        "tail-mask-full",
        "boundary",
        "the tail's predicate replaced by true",
        "a vector access without the test that the whole vector lies inside",
        _tail_mask_full,
        (
            example(
                ("int i = 4 * threadIdx.x;\nif (i + 3 < n) y[i + 3] = x[i + 3];"),
                ("int i = 4 * threadIdx.x;\nif (true) y[i + 3] = x[i + 3];"),
            ),
            example(
                ("if (n % 4 == 0) { y[0] = x[0]; } else { y[1] = x[1]; }"),
                ("if (true) { y[0] = x[0]; } else { y[1] = x[1]; }"),
            ),
            example(
                ("int i = 4 * threadIdx.x;\nint count = min(4, n - i);\ny[i] = count;"),
                ("int i = 4 * threadIdx.x;\nint count = 4;\ny[i] = count;"),
            ),
            example(
                (
                    "int i = 4 * threadIdx.x;\n"
                    "for (int j = 0; j < 4 && i + j < n; ++j) y[i + j] = x[i + j];"
                ),
                ("int i = 4 * threadIdx.x;\nfor (int j = 0; j < 4; ++j) y[i + j] = x[i + j];"),
            ),
        ),
    ),
)
