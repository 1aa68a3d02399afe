"""The roles that operations of a Triton kernel play, which tell one bug from another."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelassay.mutation.triton.match import (
    binaries,
    binary,
    comparison,
    names,
    number,
    operator,
    value,
)
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import all_values, values_of

EXPONENTIALS = ("exp", "exp2")
ROOTS = ("sqrt", "rsqrt", "sqrt_rn")
MATH = (
    *EXPONENTIALS,
    *("log", "log2", "log1p", "expm1", "sigmoid", "tanh", "erf", "sin", "cos", "abs", "fabs"),
)
REDUCTIONS = ("sum", "max", "min")


def numbers(tree: TritonTree, *signs: str) -> Iterator[cst.BinaryOperation]:
    """Binary operations on numbers: neither addresses nor indices nor masks."""
    for node in binaries(tree, *signs):
        values = values_of(tree, node)
        if values.is_number(node) and not _is_shape(tree, node):
            yield node


def _is_shape(tree: TritonTree, node: cst.CSTNode) -> bool:
    return tree.enclosing(node, cst.Subscript) is not None


def accumulated(tree: TritonTree) -> list[tuple[str, cst.CSTNode]]:
    """The sums that loops carry: the ``acc += e``, or the ``acc + e`` of ``acc = acc + e``.

    The sum may rescale the accumulator first, as ``acc * alpha + e``.
    """
    if "accumulated" not in tree.kept:
        tree.kept["accumulated"] = list(_accumulated(tree))
    found: list[tuple[str, cst.CSTNode]] = tree.kept["accumulated"]  # type: ignore[assignment]
    return found


def _accumulated(tree: TritonTree) -> Iterator[tuple[str, cst.CSTNode]]:
    for values in all_values(tree):
        for carried in values.carried:
            if values.kind(cst.Name(carried.name)) not in ("value", "scalar"):
                continue
            for update in carried.updates:
                if update.sign == "+":
                    yield carried.name, update.node
                elif not update.sign and binary(update.value, "+"):
                    sides = (update.value.left, update.value.right)
                    if any(_holds(side, carried.name) for side in sides):
                        yield carried.name, update.value


def _holds(node: cst.CSTNode, name: str) -> bool:
    """Whether an operand is the accumulator itself, or a product of it."""
    while binary(node, "*"):
        node = node.left
    return isinstance(node, cst.Name) and node.value == name


def is_rescale(tree: TritonTree, node: cst.CSTNode) -> bool:
    """Whether a product scales an accumulator on its way: ``acc * alpha``."""
    if not binary(node, "*") or not isinstance(node.left, cst.Name):
        return False
    name = node.left.value
    for carried in values_of(tree, node).carried:
        if carried.name == name:
            return any(update.node in tree.ancestors(node) for update in carried.updates)
    return False


def is_scale(tree: TritonTree, node: cst.CSTNode) -> bool:
    """Whether a product scales a tile by a single number: a parameter, a constant."""
    if not binary(node, "*"):
        return False
    values = values_of(tree, node)
    return {values.kind(node.left), values.kind(node.right)} == {"value", "scalar"}


def scaled(tree: TritonTree, node: cst.BinaryOperation) -> cst.BaseExpression:
    """The tile of such a product."""
    values = values_of(tree, node)
    return node.left if values.kind(node.left) == "value" else node.right


def is_shift(tree: TritonTree, node: cst.CSTNode) -> bool:
    """Whether a difference is the shifted exponent of an exponential: ``exp(x - m)``."""
    if not binary(node, "-"):
        return False
    outer = tree.parent(node)
    call = tree.parent(outer) if isinstance(outer, cst.Arg) else None
    return call is not None and tree.callee(call) in EXPONENTIALS


def is_named_shift(tree: TritonTree, node: cst.CSTNode) -> bool:
    """Whether a difference from a maximum has a name whose exponential is taken."""
    outer = tree.parent(node)
    if not binary(node, "-") or not isinstance(outer, cst.Assign):
        return False
    values = values_of(tree, node)
    given = [a.value for n in names(tree, node.right) for a in values.assigned(n)]
    target = tree.text(outer.targets[0].target)
    exponents = [
        tree.text(call.args[0].value)
        for call in tree.calls(*EXPONENTIALS, within=values.function.node.body)
        if call.args
    ]
    from_top = any(any(tree.calls("max", within=side)) for side in (node.right, *given))
    return from_top and target in exponents


def is_epsilon(tree: TritonTree, node: cst.CSTNode) -> bool:
    """Whether a sum adds a small number that keeps a root or a quotient finite."""
    if not binary(node, "+"):
        return False
    literal = number(node.right)
    named = isinstance(node.right, cst.Name) and "eps" in node.right.value.lower()
    return named or (literal is not None and 0 < literal <= 1e-2)


def constants(tree: TritonTree) -> Iterator[cst.BaseExpression]:
    """The numbers written out in what a kernel computes, without fills and start values."""
    for node in tree.nodes(cst.Float, cst.Integer):
        outer = tree.parent(node)
        if isinstance(outer, cst.BinaryOperation):
            values = values_of(tree, node)
            if values.is_number(outer) and operator(outer) in ("+", "-", "*", "/"):
                yield node
        elif isinstance(outer, cst.Comparison | cst.ComparisonTarget):
            whole = outer if isinstance(outer, cst.Comparison) else tree.parent(outer)
            sides = comparison(whole) if whole is not None else None
            values = values_of(tree, node)
            if sides and (values.is_number(sides[0]) or values.is_number(sides[2])):
                yield node
        elif isinstance(outer, cst.Arg) and _is_operand(tree, outer):
            yield node
        elif isinstance(outer, cst.Assign) and isinstance(node, cst.Float):
            yield from [] if _is_start(tree, outer) else [node]


def _is_operand(tree: TritonTree, arg: cst.Arg) -> bool:
    """Whether an argument is a number of a clamp or of a choice between numbers."""
    call = tree.parent(arg)
    if not isinstance(call, cst.Call):
        return False
    name = tree.callee(call)
    if name == "where":
        return arg is not call.args[0] and not is_fill(tree, arg.value)
    return name in ("maximum", "minimum")


def is_fill(tree: TritonTree, node: cst.BaseExpression) -> bool:
    """Whether an arm of ``tl.where`` fills what a mask of indices leaves out."""
    arg = tree.parent(node)
    call = tree.parent(arg) if isinstance(arg, cst.Arg) else None
    if call is None or tree.callee(call) != "where":
        return False
    condition = value(call, 0, "condition")
    return condition is not None and is_index_mask(tree, condition)


def is_index_mask(tree: TritonTree, node: cst.BaseExpression) -> bool:
    """Whether a condition is made of bound tests only."""
    values = values_of(tree, node)
    if isinstance(node, cst.Name):
        assigned = values.assigned(node.value)
        return bool(assigned) and all(is_index_mask(tree, a.value) for a in assigned)
    if isinstance(node, cst.Subscript):
        return is_index_mask(tree, node.value)
    if binary(node, "&", "|"):
        return is_index_mask(tree, node.left) and is_index_mask(tree, node.right)
    return values.is_bound(node)


def _is_start(tree: TritonTree, assignment: cst.Assign) -> bool:
    values = values_of(tree, assignment)
    return any(carried.initial.node is assignment for carried in values.carried)
