"""The semantic family, in functions and conditions."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelassay.mutation.rule import Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import rule, stored
from kernelassay.mutation.triton.match import (
    atom,
    comparison,
    lift,
    number,
    put,
    replace,
    sign,
    value,
)
from kernelassay.mutation.triton.roles import (
    MATH,
    ROOTS,
    is_fill,
)
from kernelassay.mutation.triton.semantic_reduction import either, exchanged
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import values_of

# -- functions ----------------------------------------------------------------------------------


def of_one(tree: TritonTree, *functions: str) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
    """Calls of these functions of one number, with the number."""
    for call in tree.calls(*functions):
        if len(call.args) == 1 and values_of(tree, call).is_number(call):
            yield call, call.args[0].value


def _drop_function(tree: TritonTree) -> Iterator[Mutation]:
    for call, given in of_one(tree, *MATH):
        yield mutation(lift(tree, call, given))


def _double_argument(tree: TritonTree) -> Iterator[Mutation]:
    for _, given in of_one(tree, *(f for f in MATH if f not in ("abs", "fabs"))):
        if not isinstance(given, cst.UnaryOperation):
            yield mutation(put(tree, given, f"2.0 * {atom(tree, given)}"))


def _drop_root(tree: TritonTree) -> Iterator[Mutation]:
    for call, given in of_one(tree, *ROOTS):
        inverse = tree.callee(call) == "rsqrt"
        text = f"1.0 / {atom(tree, given)}" if inverse else tree.full(given)
        yield mutation(put(tree, call, text))


def _clamp_drop(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("maximum", "minimum"):
        if len(call.args) < 2 or not values_of(tree, call).is_number(call):
            continue
        for kept, dropped in (call.args[:2], call.args[1::-1]):
            if values_of(tree, call).kind(dropped.value) == "scalar" or number(dropped.value) == 0:
                yield mutation(lift(tree, call, kept.value))


# -- conditions ---------------------------------------------------------------------------------


def _choices(
    tree: TritonTree,
) -> Iterator[tuple[cst.Call, cst.BaseExpression, cst.BaseExpression]]:
    for call in tree.calls("where"):
        arms = value(call, 1, "x"), value(call, 2, "y")
        if arms[0] is not None and arms[1] is not None:
            yield call, arms[0], arms[1]


def _choice_swap(tree: TritonTree) -> Iterator[Mutation]:
    for _, one, other in _choices(tree):
        yield mutation(replace(tree, one, tree.text(other)), replace(tree, other, tree.text(one)))


def _choice_first(tree: TritonTree) -> Iterator[Mutation]:
    for call, one, other in _choices(tree):
        # A bare number is no tile: what follows would not compile.
        if not is_fill(tree, other) and values_of(tree, call).kind(one) == "value":
            yield mutation(lift(tree, call, one))


def _choice_second(tree: TritonTree) -> Iterator[Mutation]:
    for call, one, other in _choices(tree):
        if not is_fill(tree, one) and values_of(tree, call).kind(other) == "value":
            yield mutation(lift(tree, call, other))


def _relax(tree: TritonTree) -> Iterator[Mutation]:
    other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
    for node in tree.nodes(cst.Comparison):
        sides, values = comparison(node), values_of(tree, node)
        if sides is None or sides[1] not in other:
            continue
        if values.is_number(sides[0]) or values.is_number(sides[2]):
            yield mutation(sign(tree, node, other[sides[1]]))


FUNCTIONS: tuple[Rule, ...] = (
    rule(
        "drop-function",
        "semantic",
        "`f(e)` to `e` for exponential, logarithm, sigmoid and the like",
        "a forgotten function",
        _drop_function,
        stored("x * tl.sigmoid(x)", "x * x"),
    ),
    rule(
        "double-argument",
        "semantic",
        "`f(e)` to `f(2 e)`",
        "a wrong slope, as in silu by sigmoid(2 x)",
        _double_argument,
        stored("tl.sigmoid(x)", "tl.sigmoid(2.0 * x)"),
    ),
    rule(
        "exp-base",
        "semantic",
        "`exp` to `exp2` and back",
        "a base-2 exponential without the factor log2(e)",
        either("exp", "exp2"),
        stored("tl.exp(x)", "tl.exp2(x)"),
    ),
    rule(
        "log-base",
        "semantic",
        "`log` to `log2` and back",
        "a base-2 logarithm without the factor log(2)",
        either("log", "log2"),
        stored("tl.log(x)", "tl.log2(x)"),
    ),
    rule(
        "sigmoid-to-exp",
        "semantic",
        "`sigmoid(e)` to `exp(e)`",
        "another activation's function",
        exchanged("sigmoid", "exp"),
        stored("x * tl.sigmoid(x)", "x * tl.exp(x)"),
    ),
    rule(
        "drop-root",
        "semantic",
        "`sqrt(e)` to `e`, `rsqrt(e)` to `1 / e`",
        "a norm without its root",
        _drop_root,
        stored("x / tl.sqrt(x + 1.0)", "x / (x + 1.0)"),
        stored("x * tl.rsqrt(x)", "x * (1.0 / x)"),
    ),
    rule(
        "root-inverse",
        "semantic",
        "`rsqrt` to `sqrt` and back",
        "a root taken for its reciprocal",
        either("sqrt", "rsqrt"),
        stored("x * tl.rsqrt(x)", "x * tl.sqrt(x)"),
    ),
    rule(
        "clamp-drop",
        "semantic",
        "`tl.maximum(e, c)` to `e` and to `c`, for a bound c",
        "one side of a clamp forgotten, or an activation",
        _clamp_drop,
        stored("tl.maximum(x, 0.0)", "x"),
    ),
    rule(
        "choice-swap",
        "semantic",
        "`tl.where(c, a, b)` to `tl.where(c, b, a)`",
        "the arms of a choice exchanged",
        _choice_swap,
        stored("tl.where(x > 0, x, 0.1 * x)", "tl.where(x > 0, 0.1 * x, x)"),
    ),
    rule(
        "choice-first",
        "semantic",
        "`tl.where(c, a, b)` to `a`",
        "a condition forgotten",
        _choice_first,
        stored("tl.where(x > 0, x, 0.1 * x)", "x"),
    ),
    rule(
        "choice-second",
        "semantic",
        "`tl.where(c, a, b)` to `b`",
        "a condition forgotten",
        _choice_second,
        stored("tl.where(x > 0, x, 0.1 * x)", "0.1 * x"),
        stored("tl.where(x > 0, x, 0.0)"),
    ),
    rule(
        "comparison-relax",
        "semantic",
        "`>` to `>=`, `<` to `<=` on numbers, and back",
        "a threshold that belongs to the wrong side",
        _relax,
        stored("tl.where(x > 0, x, 0.1 * x)", "tl.where(x >= 0, x, 0.1 * x)"),
    ),
)
