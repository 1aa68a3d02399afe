"""The arithmetic family: operators, operands and constants of the numbers a kernel computes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelassay.mutation.rule import Find, Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import SUMMED, body, rule, stored
from kernelassay.mutation.triton.match import (
    argument,
    atom,
    comparison,
    infinity,
    lift,
    number,
    operator,
    put,
    replace,
    sign,
    without_argument,
)
from kernelassay.mutation.triton.roles import (
    MATH,
    accumulated,
    constants,
    is_epsilon,
    is_named_shift,
    is_rescale,
    is_scale,
    is_shift,
    numbers,
)
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import all_values, values_of

# -- operators ----------------------------------------------------------------------------------


def _operator(old: str, new: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for node in numbers(tree, old):
            if old == "*" and is_rescale(tree, node):
                continue
            if (old in "+-") == (new in "+-"):
                yield mutation(sign(tree, node, new))
            else:
                # The operands stay what they are, however tightly the new operator binds.
                sides = [_operand(tree, side, new) for side in (node.left, node.right)]
                yield mutation(put(tree, node, f" {new} ".join(sides)))

    return find


def _operand(tree: TritonTree, node: cst.BaseExpression, new: str) -> str:
    loose = isinstance(node, cst.BinaryOperation) and operator(node) in "+-"
    return atom(tree, node) if loose and new in "*/" else tree.full(node)


def _swap_operands(tree: TritonTree) -> Iterator[Mutation]:
    for node in numbers(tree, "-", "/"):
        left, right = atom(tree, node.left), atom(tree, node.right)
        yield mutation(replace(tree, node, f"{right} {operator(node)} {left}"))


def _drop_left(tree: TritonTree) -> Iterator[Mutation]:
    for node in numbers(tree, "+", "*"):
        if _is_general(tree, node):
            yield mutation(lift(tree, node, node.right))


def _drop_right(tree: TritonTree) -> Iterator[Mutation]:
    for node in numbers(tree, "+", "-", "*"):
        if _is_general(tree, node):
            yield mutation(lift(tree, node, node.left))


def _is_general(tree: TritonTree, node: cst.BinaryOperation) -> bool:
    """Whether no rule of a narrower bug drops an operand of this operation."""
    return not (
        tree.text(node.left) == tree.text(node.right)
        or is_scale(tree, node)
        or is_shift(tree, node)
        or is_named_shift(tree, node)
        or is_rescale(tree, node)
        or is_epsilon(tree, node)
        or any(term is node for _, term in accumulated(tree))
    )


# -- accumulation -------------------------------------------------------------------------------


def _accumulate_to_assign(tree: TritonTree) -> Iterator[Mutation]:
    for assignment, node in accumulated(tree):
        if isinstance(node, cst.AugAssign):
            yield mutation(sign(tree, node, "="))
        elif isinstance(node, cst.BinaryOperation):
            own = _is_own(node.left, assignment)
            yield mutation(lift(tree, node, node.right if own else node.left))
    for values in all_values(tree):
        for carried in values.carried:
            for update in carried.updates:
                given = argument(update.value, 2, "acc") if _is_dot(tree, update.value) else None
                if given is not None and tree.text(given.value) == carried.name:
                    yield mutation(*without_argument(tree, update.value, given))


def _is_dot(tree: TritonTree, node: cst.BaseExpression) -> bool:
    return tree.callee(node) == "dot"


def _is_own(node: cst.CSTNode, name: str) -> bool:
    inner = node
    while isinstance(inner, cst.BinaryOperation):
        inner = inner.left
    return isinstance(inner, cst.Name) and inner.value == name


def _accumulate_sign(tree: TritonTree) -> Iterator[Mutation]:
    for _, node in accumulated(tree):
        if isinstance(node, cst.AugAssign):
            yield mutation(sign(tree, node, "-="))


# -- constants and signs ------------------------------------------------------------------------


_ABOVE, _BELOW = 1 + 2**-4, 1 - 2**-4


def _constant(scale: float) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for node in constants(tree):
            old = number(node)
            new = 1.0 if old == 0 and scale == _ABOVE else (old or 0.0) * scale
            if old is not None and new != old:
                yield mutation(put(tree, node, _shown(new)))

    return find


def _constant_to_one(tree: TritonTree) -> Iterator[Mutation]:
    for node in constants(tree):
        if number(node) not in (0, 1, -1):
            yield mutation(put(tree, node, "1.0"))


def _shown(value: float) -> str:
    """A float literal without the noise of a product: 12 digits tell all float32 apart."""
    return repr(float(f"{value:.12g}"))


def _drop_negation(tree: TritonTree) -> Iterator[Mutation]:
    for node in tree.nodes(cst.UnaryOperation):
        if not isinstance(node.operator, cst.Minus) or infinity(tree, node):
            continue
        if number(node) is None and values_of(tree, node).is_number(node):
            yield mutation(lift(tree, node, node.expression))


def _negate_argument(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls(*MATH):
        given = call.args[0].value if call.args else None
        if given is None or isinstance(given, cst.UnaryOperation):
            continue
        if values_of(tree, call).is_number(given):
            yield mutation(replace(tree, given, f"-{atom(tree, given)}"))


def _relational_flip(tree: TritonTree) -> Iterator[Mutation]:
    opposite = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "!=", "!=": "=="}
    for node in tree.nodes(cst.Comparison):
        sides = comparison(node)
        if sides is None or sides[1] not in opposite:
            continue
        values = values_of(tree, node)
        if values.is_number(sides[0]) or values.is_number(sides[2]):
            yield mutation(sign(tree, node, opposite[sides[1]]))


RULES: tuple[Rule, ...] = (
    rule(
        "add-to-sub",
        "arithmetic",
        "`a + b` to `a - b` on numbers that are no index",
        "a term enters with the wrong sign",
        _operator("+", "-"),
        stored("x * x + x", "x * x - x"),
        stored("tl.exp(x)"),
    ),
    rule(
        "sub-to-add",
        "arithmetic",
        "`a - b` to `a + b`",
        "a difference computed as a sum, such as the deviation from the mean",
        _operator("-", "+"),
        stored("(x - 1.0) * x", "(x + 1.0) * x"),
    ),
    rule(
        "mul-to-div",
        "arithmetic",
        "`a * b` to `a / b`",
        "a scale applied as a divisor",
        _operator("*", "/"),
        stored("x * 0.5", "x / 0.5"),
    ),
    rule(
        "div-to-mul",
        "arithmetic",
        "`a / b` to `a * b`",
        "a divisor taken for a reciprocal that is computed already",
        _operator("/", "*"),
        stored("x / tl.sqrt(x)", "x * tl.sqrt(x)"),
    ),
    rule(
        "mul-to-add",
        "arithmetic",
        "`a * b` to `a + b`",
        "the wrong operator, as in a gate that adds",
        _operator("*", "+"),
        stored("x * tl.sigmoid(x)", "x + tl.sigmoid(x)"),
        stored("x * x / 2.0", "(x + x) / 2.0"),
    ),
    rule(
        "add-to-mul",
        "arithmetic",
        "`a + b` to `a * b`",
        "the wrong operator, as in a residual that multiplies",
        _operator("+", "*"),
        stored("x + tl.exp(x)", "x * tl.exp(x)"),
    ),
    rule(
        "swap-noncommutative",
        "arithmetic",
        "`a - b` to `b - a`, `a / b` to `b / a`",
        "the operands of a difference or a quotient in the wrong order",
        _swap_operands,
        stored("(x - 1.0) / tl.exp(x)", "tl.exp(x) / (x - 1.0)", "(1.0 - x) / tl.exp(x)"),
    ),
    rule(
        "drop-left-term",
        "arithmetic",
        "`a + b` and `a * b` to `b`",
        "a forgotten term or factor",
        _drop_left,
        stored("x * tl.sigmoid(x)", "tl.sigmoid(x)"),
        stored("tl.exp(x) + x", "x"),
    ),
    rule(
        "drop-right-term",
        "arithmetic",
        "`a + b`, `a - b` and `a * b` to `a`",
        "a forgotten term or factor, such as the inner cubic term of gelu",
        _drop_right,
        stored("x * (1.0 + x * x)", "x", "x * (1.0)"),
        stored("tl.exp(x) - 1.0", "tl.exp(x)"),
    ),
    rule(
        "accumulate-to-assign",
        "arithmetic",
        "`acc += e` to `acc = e` in a loop",
        "only the last tile survives, as in a matrix product that overwrites its accumulator",
        _accumulate_to_assign,
        body(SUMMED, ("acc += ", "acc = ")),
        body(SUMMED.replace("acc += tl", "acc = acc + tl"), ("acc + tl", "tl")),
        body(
            "acc = tl.zeros((16, 16), dtype=tl.float32)\nfor k in range(n):\n"
            "    a = tl.load(x_ptr + k)\n    acc = tl.dot(a, a, acc)\ntl.store(y_ptr, acc)",
            ("a, a, acc", "a, a"),
        ),
    ),
    rule(
        "accumulate-sign",
        "arithmetic",
        "`acc += e` to `acc -= e` in a loop",
        "a sum that subtracts",
        _accumulate_sign,
        body(SUMMED, ("acc += ", "acc -= ")),
    ),
    rule(
        "constant-plus",
        "arithmetic",
        "a constant c to c * (1 + 1/16), 0 to 1",
        "a mistyped constant",
        _constant(_ABOVE),
        stored("x * 0.5", "x * 0.53125"),
        stored(
            "tl.where(x > 0, x, 0.1)", "tl.where(x > 1.0, x, 0.1)", "tl.where(x > 0, x, 0.10625)"
        ),
    ),
    rule(
        "constant-minus",
        "arithmetic",
        "a constant c to c * (1 - 1/16)",
        "a mistyped constant",
        _constant(_BELOW),
        stored("x * 0.5", "x * 0.46875"),
    ),
    rule(
        "constant-tenfold",
        "arithmetic",
        "a constant c to 10 c",
        "a decimal point in the wrong place, such as a leaky slope of 0.1 for 0.01",
        _constant(10),
        stored(
            "tl.where(x > 1.0, x, 0.01 * x)",
            "tl.where(x > 10.0, x, 0.01 * x)",
            "tl.where(x > 1.0, x, 0.1 * x)",
        ),
    ),
    rule(
        "constant-to-one",
        "arithmetic",
        "a constant that is neither 0 nor 1 to 1",
        "a forgotten factor, such as the 0.5 of gelu",
        _constant_to_one,
        stored("0.5 * x + 1.0", "1.0 * x + 1.0"),
    ),
    rule(
        "drop-negation",
        "arithmetic",
        "`-e` to `e`",
        "a lost sign, as in the exponent of a sigmoid",
        _drop_negation,
        stored("1.0 / (1.0 + tl.exp(-x))", "1.0 / (1.0 + tl.exp(x))"),
    ),
    rule(
        "negate-argument",
        "arithmetic",
        "`f(e)` to `f(-e)` for a function of one number",
        "a sign too many",
        _negate_argument,
        stored("tl.exp(x - 1.0)", "tl.exp(-(x - 1.0))"),
    ),
    rule(
        "relational-flip",
        "arithmetic",
        "`<` to `>`, `<=` to `>=`, `==` to `!=` on numbers, and back",
        "the two sides of a condition exchanged",
        _relational_flip,
        stored("tl.where(x > 0, x, -x)", "tl.where(x < 0, x, -x)"),
    ),
)
