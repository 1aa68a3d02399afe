"""Semantic faults of divisors: means for sums, and what average pooling divides by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from tree_sitter import Node

from kernelassay.mutation.examples import ROWS, example, row_sum
from kernelassay.mutation.match import LOOPS, binary, number, put, resolve, stores, strip, updates
from kernelassay.mutation.nodes import arguments, callee, field, operator
from kernelassay.mutation.rule import Mutation, Rule
from kernelassay.mutation.tree import KernelTree, mutation, replace

_COUNT = re.compile(r"count(s)?(\[.*\])?$")
_INCLUDES = re.compile(r"include|count_pad")


def count_division(tree: KernelTree, node: Node) -> tuple[Node, Node] | None:
    """``(total, count)`` of a division by a number of elements, or a product with its inverse."""
    sides = binary(tree, node, "/", "*")
    if not sides or not tree.is_float(node) or number(tree, sides[0]) is not None:
        return None
    if operator(tree, node) == "/":
        return sides if is_count(tree, sides[1]) else None
    inverse = binary(tree, resolve(tree, sides[1]), "/")
    if inverse and number(tree, inverse[0]) == 1 and is_count(tree, inverse[1]):
        return sides
    return None


def is_count(tree: KernelTree, node: Node) -> bool:
    """Whether an expression is a number of elements: an integer, cast or not, or so called."""
    node = resolve(tree, node)
    if number(tree, node) is not None:
        return False
    if _COUNT.search(tree.text(node)) and node.type != "binary_expression":
        return True
    sides = binary(tree, node, "-")  # n - 1.0f
    if sides and number(tree, sides[1]) is not None:
        return is_count(tree, sides[0])
    if node.type == "cast_expression":
        return tree.is_integer(field(node, "value"))
    if callee(tree, node) in ("static_cast", "float", "__int2float_rn"):
        return tree.is_integer(arguments(node)[0])
    return tree.is_integer(node)


def _mean_vs_sum(tree: KernelTree) -> Iterator[Mutation]:
    dividing = False
    for node in tree.nodes("binary_expression"):
        found = count_division(tree, node)
        if found:
            dividing = True
            yield mutation(put(tree, node, tree.text(found[0])))
    for store in stores(tree):
        value = strip(store.value)
        if dividing or value.type != "identifier":
            continue
        bound = _summing_bound(tree, store.node, tree.text(value))
        if bound is not None:
            yield mutation(replace(store.value, f"{tree.text(value)} / (float)({bound})"))


def _summing_bound(tree: KernelTree, store: Node, name: str) -> str | None:
    """The size that bounds the loop, before ``store``, that sums plain elements into ``name``."""
    function = tree.function(store)
    sizes = set(tree.size_parameters(function))
    for update in updates(tree, function):
        loop = tree.enclosing(update.node, "for_statement")
        if update.name != name or loop is None or update.fused:
            continue
        if loop.start_byte <= store.start_byte < loop.end_byte:
            continue  # a prefix sum
        if binary(tree, resolve(tree, update.term), "*"):
            continue  # a dot product has no mean
        condition = loop.child_by_field_name("condition")
        sides = binary(tree, condition, "<") if condition is not None else None
        if sides and tree.text(sides[1]) in sizes:
            return tree.text(sides[1])
    return None


def _count_include_pad(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("conditional_expression"):
        if _INCLUDES.search(tree.text(field(node, "condition"))):
            one, two = (tree.text(field(node, f)) for f in ("consequence", "alternative"))
            yield mutation(put(tree, node, one))
            yield mutation(put(tree, node, two))
    for node in tree.nodes("if_statement"):
        condition = field(node, "condition")
        if _INCLUDES.search(tree.text(condition)):
            yield mutation(replace(condition, "(true)"))
            yield mutation(replace(condition, "(false)"))
    for node in tree.nodes("binary_expression"):
        found = count_division(tree, node)
        if found is None or operator(tree, node) != "/":
            continue
        window = _window(tree, tree.function(node))
        divisor = found[1]
        if window and _is_counted(tree, divisor):
            yield mutation(replace(divisor, f"(float)({window})"))


def _window(tree: KernelTree, function: Node) -> str:
    """The product of the kernel-size parameters of a pooling kernel."""
    sizes = tree.size_parameters(function)
    return " * ".join(s for s in sizes if re.fullmatch(r"k|k[dhwtxy]|(kernel|window)\w*", s))


def _is_counted(tree: KernelTree, divisor: Node) -> bool:
    """Whether a divisor is a count of valid elements: a local counter or clipped extents."""
    name = re.sub(r"\(float\)|[()\s]|static_cast<float>", "", tree.text(divisor))
    function = tree.function(divisor)
    for node in tree.nodes("update_expression", "assignment_expression", within=function):
        side = "argument" if node.type == "update_expression" else "left"
        loop = tree.enclosing(node, *LOOPS)
        if tree.text(field(node, side)) == name and loop is not None:
            header = field(loop, "update") if loop.type == "for_statement" else None
            return header is None or header.id != node.id
    value = resolve(tree, divisor)
    return "-" in tree.text(value)


# -- the rules ----------

_example = partial(example, params=ROWS)
_POOL = "const float* x, float* y, int n, int kernel_w, int pad"


def _pool(divisor: str) -> str:
    return (
        "    float acc = 0.0f;\n    int count = 0;\n"
        "    for (int k = 0; k < kernel_w; ++k) {\n"
        "        if (k < pad) continue;\n        acc += x[k];\n        ++count;\n    }\n"
        f"    y[threadIdx.x] = acc / {divisor};"
    )


MEAN_VS_SUM = Rule(
    "mean-vs-sum",
    "semantic",
    "a division by a count removed; a plain sum divided by its length",
    "reduction='sum' and reduction='mean' mixed up",
    _mean_vs_sum,
    (
        _example(row_sum(value="acc / (float)cols"), row_sum()),
        _example(row_sum(), row_sum(value="acc / (float)(cols)")),
    ),
)
COUNT_INCLUDE_PAD = Rule(
    "count-include-pad",
    "semantic",
    "average pooling's divisor: the count of valid elements and the full window exchanged",
    "count_include_pad read the wrong way round",
    _count_include_pad,
    (
        _example(_pool("count"), _pool("(float)(kernel_w)"), params=_POOL),
        _example(
            "    y[0] = x[0] / (include_pad ? 9 : n);",
            "    y[0] = x[0] / (9);",
            "    y[0] = x[0] / (n);",
            params="const float* x, float* y, int n, int include_pad",
        ),
    ),
)
