"""Semantic faults of reductions: extrema, ties, start values, norms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from tree_sitter import Node

from kernelassay.mutation.activations import MAX, MIN
from kernelassay.mutation.examples import ROWS, example, row_sum
from kernelassay.mutation.match import (
    LOOPS,
    atom,
    binary,
    declared_name,
    definition,
    number,
    pure,
    put,
    same,
    strip,
    updates,
)
from kernelassay.mutation.nodes import arguments, callee, calls, field, names_in, operator
from kernelassay.mutation.rule import Edit, Mutation, Rule
from kernelassay.mutation.semantic_divisors import is_count
from kernelassay.mutation.tree import KernelTree, mutation, replace

_INFINITE = frozenset({"INFINITY", "FLT_MAX", "HUGE_VALF", "CUDART_INF_F"})
_UNSIGNED = re.compile(r"unsigned|uint|size_t")
_FLIPPED = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


# -- extrema ----------


def _max_min_swap(tree: KernelTree) -> Iterator[Mutation]:
    names = dict(zip((*MAX, *MIN), (*MIN, *MAX), strict=True))
    names |= {"atomicMax": "atomicMin", "atomicMin": "atomicMax"}
    names |= {"__hmax": "__hmin", "__hmin": "__hmax"}
    for node in calls(tree, *names):
        yield mutation(replace(field(node, "function"), names[callee(tree, node)]))


def _selections(tree: KernelTree) -> Iterator[Node]:
    """Conditions under which a value *and* its index are taken over."""
    for node in tree.nodes("if_statement", "conditional_expression"):
        condition = strip(field(node, "condition"))
        if node.type == "if_statement":
            changed = [
                field(n, "left")
                for n in tree.nodes("assignment_expression", within=field(node, "consequence"))
            ]
            takes_index = any(tree.is_integer(t) for t in changed)
            takes_value = any(tree.is_float(t) for t in changed)
            compares = any(tree.is_float(side) for side in _compared(tree, condition))
            if takes_index and takes_value and compares:
                yield condition
        elif tree.is_integer(node) and any(tree.is_float(s) for s in _compared(tree, condition)):
            yield condition


def _compared(tree: KernelTree, condition: Node) -> list[Node]:
    return [
        side
        for node in tree.nodes("binary_expression", within=condition)
        for side in binary(tree, node, *_FLIPPED) or ()
    ]


def _tie_break(tree: KernelTree) -> Iterator[Mutation]:
    for condition in _selections(tree):
        for node in tree.nodes("binary_expression", within=condition):
            sides = binary(tree, node, *_FLIPPED)
            if sides:
                table = _FLIPPED if tree.is_float(sides[0]) else _MIRRORED
                yield mutation(replace(field(node, "operator"), table[operator(tree, node)]))
        loop = tree.enclosing(condition, *LOOPS)
        reversed_ = reversed_loop(tree, loop) if loop is not None else None
        if reversed_:
            yield mutation(*reversed_)


def reversed_loop(tree: KernelTree, loop: Node) -> tuple[Edit, ...] | None:
    """The edits that run ``for (T i = a; i < b; ++i)`` from the other end."""
    if loop.type != "for_statement":
        return None
    initial, condition, update = (
        loop.child_by_field_name(f) for f in ("initializer", "condition", "update")
    )
    if initial is None or condition is None or update is None:
        return None
    declarator = initial.child_by_field_name("declarator")
    sides = binary(tree, condition, "<")
    if declarator is None or declarator.type != "init_declarator" or not sides:
        return None
    name, start = declared_name(tree, declarator), field(declarator, "value")
    if tree.text(sides[0]) != name or update.type != "update_expression":
        return None
    if operator(tree, update) != "++" or _UNSIGNED.search(tree.text(field(initial, "type"))):
        return None
    return (
        replace(start, f"{atom(tree, sides[1])} - 1"),
        replace(condition, f"{name} >= {atom(tree, start)}"),
        replace(update, f"--{name}"),
    )


# -- start values ----------


def _init_identity(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("init_declarator", "assignment_expression", "conditional_expression"):
        for value in _starts(tree, node):
            for text in _other_starts(tree, value):
                yield mutation(put(tree, value, text))


def _starts(tree: KernelTree, node: Node) -> list[Node]:
    """Expressions of ``node`` that are a start or fallback value of a float reduction."""
    if node.type == "init_declarator":
        value = field(node, "value")
        items = value.named_children if value.type == "initializer_list" else [value]
        name, function = declared_name(tree, node), tree.function(node)
        summed = any(u.name == name for u in updates(tree, function))
        multiplied = _is_multiplied(tree, function, name)
        return [i for i in items if _is_infinite(tree, i)] or (
            items[:1] if (summed or multiplied) and tree.is_float(items[0]) else []
        )
    if node.type == "assignment_expression":
        value = field(node, "right")
        return [value] if operator(tree, node) == "=" and _is_infinite(tree, value) else []
    branches = (field(node, "consequence"), field(node, "alternative"))
    return [b for b in branches if _is_infinite(tree, b)]


def _is_multiplied(tree: KernelTree, function: Node, name: str) -> bool:
    for node in tree.nodes("assignment_expression", within=function):
        if tree.text(field(node, "left")) != name:
            continue
        factors = binary(tree, field(node, "right"), "*") or ()
        if operator(tree, node) == "*=" or any(tree.text(f) == name for f in factors):
            return True
    return False


def _is_infinite(tree: KernelTree, node: Node) -> bool:
    names = names_in(tree, node)
    value = number(tree, node)
    return bool(names and names <= _INFINITE) or (value is not None and abs(value) > 1e30)


def _other_starts(tree: KernelTree, value: Node) -> tuple[str, ...]:
    if _is_infinite(tree, value):
        is_low = tree.text(strip(value)).startswith("-")
        return ("0.0f", "1.17549435e-38f") if is_low else ("0.0f",)
    return (
        {0.0: ("1.0f",), 1.0: ("0.0f",)}.get(number(tree, value) or 0.0, ())
        if (number(tree, value) is not None)
        else ()
    )


# -- norms ----------


def _norm_power(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression", "call_expression"):
        if not tree.is_float(node):
            continue
        name = callee(tree, node)
        if name in ("fabsf", "fabs") and _is_summed(tree, node):
            value = atom(tree, arguments(node)[0])
            if pure(tree, node):
                yield mutation(put(tree, node, f"{value} * {value}"))
        elif name in ("sqrtf", "sqrt", "__fsqrt_rn"):
            if is_count(tree, arguments(node)[0]):
                continue  # the scale of attention scores, no norm
            yield mutation(put(tree, node, tree.text(arguments(node)[0])))
        elif not name:
            sides = binary(tree, node, "*")
            if sides and same(tree, *sides) and _is_summed(tree, node):
                yield mutation(put(tree, node, f"fabsf({tree.text(sides[0])})"))


def _is_summed(tree: KernelTree, node: Node) -> bool:
    """Whether ``node`` is exactly what a loop adds up."""
    for update in updates(tree, tree.function(node)):
        if strip(update.term).id == node.id and tree.enclosing(node, *LOOPS):
            return True
        if definition(tree, update.term) == node and tree.enclosing(update.node, *LOOPS):
            return True
    return False


# -- the rules ----------

_example = partial(example, params=ROWS)


def _best(loop: str, test: str) -> str:
    return (
        "    float best = x[0];\n    int at = 0;\n"
        f"    for ({loop}) {{\n        if ({test}) {{ best = x[j]; at = j; }}\n    }}\n"
        "    y[threadIdx.x] = at;"
    )


def _maximum(start: str) -> str:
    return (
        f"    float best = {start};\n"
        "    for (int j = 0; j < cols; ++j) best = fmaxf(best, x[j]);\n    y[0] = best;"
    )


_UP, _DOWN = "int j = 0; j < cols; ++j", "int j = cols - 1; j >= 0; --j"

MAX_MIN_SWAP = Rule(
    "max-min-swap",
    "semantic",
    "`fmaxf` and `fminf`, `max` and `min` exchanged",
    "the wrong extremum",
    _max_min_swap,
    (_example("    y[0] = fmaxf(x[0], x[1]);", "    y[0] = fminf(x[0], x[1]);"),),
)
TIE_BREAK = Rule(
    "tie-break",
    "semantic",
    "an arg-reduction's `>` to `>=`, its tie test mirrored, its scan run from the other end",
    "the last of equal elements is reported instead of the first",
    _tie_break,
    (
        _example(
            _best(_UP, "x[j] > best"),
            _best(_UP, "x[j] >= best"),
            _best(_DOWN, "x[j] > best"),
        ),
    ),
)
INIT_IDENTITY = Rule(
    "init-identity",
    "semantic",
    "a start value: -inf to 0 and to FLT_MIN, +inf to 0, 0 to 1, 1 to 0",
    "the start value is not the operation's identity (a maximum of negatives starts at 0)",
    _init_identity,
    (
        _example(_maximum("-INFINITY"), _maximum("0.0f"), _maximum("1.17549435e-38f")),
        _example(row_sum(), row_sum().replace("acc = 0.0f", "acc = 1.0f")),
    ),
)
NORM_POWER = Rule(
    "norm-power",
    "semantic",
    "summed absolute values to squares and back; a square root dropped",
    "the L1, L2 and squared L2 norms mixed up",
    _norm_power,
    (
        _example(
            row_sum(term="x[j] * x[j]", value="sqrtf(acc)"),
            row_sum(term="fabsf(x[j])", value="sqrtf(acc)"),
            row_sum(term="x[j] * x[j]", value="acc"),
        ),
        _example(row_sum(term="fabsf(x[j])"), row_sum(term="x[j] * x[j]")),
    ),
)
