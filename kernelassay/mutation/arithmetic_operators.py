"""Arithmetic rules that change or drop a binary operator."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.examples import example
from kernelassay.mutation.nodes import callee, field, operator
from kernelassay.mutation.ownership import unless_owned
from kernelassay.mutation.precision_math import EPS_DROP
from kernelassay.mutation.rule import Example, Find, Mutation, Rule
from kernelassay.mutation.semantic_activation import DROP_SQUARE
from kernelassay.mutation.semantic_fusion import DROP_BIAS, DROP_RESIDUAL, DROP_SCALE
from kernelassay.mutation.silent import is_sign_lost
from kernelassay.mutation.sites import (
    arguments,
    atom,
    binaries,
    change_operator,
    in_bound,
    number,
    swap,
)
from kernelassay.mutation.tree import KernelTree, delete, mutation, replace

#: Half-precision intrinsics by the operator they stand for.
_HALF = {"+": "__hadd", "-": "__hsub", "*": "__hmul", "/": "__hdiv"}
_FMA = ("fmaf", "__fmaf_rn", "fma", "__hfma")


def _same_value(tree: KernelTree, node: Node, new: str) -> bool:
    """Whether the new operator gives the value the node has, or that another rule gives.

    ``x * 1`` and ``x / 1``, ``x + 0`` and ``x - 0`` are equal; ``1 + x`` to ``1 * x`` is
    drop-left-term's rewrite, ``1 / x`` to ``1 * x`` is swap-noncommutative's.
    """
    left, right = (number(tree, field(node, side)) for side in ("left", "right"))
    change = (operator(tree, node), new)
    if (change == ("/", "*") and left == 1.0) or (change == ("+", "*") and 1.0 in (left, right)):
        return True
    pair = {operator(tree, node), new}
    if pair == {"*", "/"}:
        return right in (1.0, -1.0)
    return pair == {"+", "-"} and right == 0.0


def _float_operator(old: str, new: str) -> Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for node in tree.nodes("binary_expression", "call_expression"):
            if node.type == "call_expression":
                yield from _operator_call(tree, node, old, new)
            elif (
                operator(tree, node) == old
                and tree.is_float(node)
                and not _same_value(tree, node, new)
            ):
                yield mutation(*change_operator(tree, node, new))

    return find


def _operator_call(tree: KernelTree, call: Node, old: str, new: str) -> Iterator[Mutation]:
    """The operator inside an intrinsic: ``__hadd(a, b)``, ``fmaf(a, b, c)``."""
    name, given = callee(tree, call), arguments(call)
    if name == _HALF[old]:
        yield mutation(replace(field(call, "function"), _HALF[new]))
    if name not in _FMA or len(given) != 3:
        return
    factor, other, term = given
    if old == "+" and new == "-" and not _accumulates(tree, call):
        # An accumulator's sign is the business of accumulate-sign.
        yield mutation(replace(term, f"-{atom(tree, term)}"))
    elif old == "*" and name != "__hfma":
        product = f"{atom(tree, factor)} {new} {atom(tree, other)}"
        yield mutation(replace(call, f"({product} + {atom(tree, term)})"))


def _accumulates(tree: KernelTree, call: Node) -> bool:
    """Whether a fused multiply-add is ``acc = fmaf(a, b, acc)``."""
    parent = tree.parent(call)
    return (
        parent is not None
        and parent.type == "assignment_expression"
        and tree.text(field(parent, "left")) == tree.text(arguments(call)[-1])
    )


def _is_value(tree: KernelTree, node: Node) -> bool:
    """Whether an integer expression is neither an index nor part of a bound."""
    if not tree.is_integer(node) or tree.is_index(node) or in_bound(tree, node):
        return False
    return tree.enclosing(node, "array_declarator", "template_argument_list") is None


def _integer_operator(old: str, new: str) -> Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for node in binaries(tree, old):
            if _is_value(tree, node) and not _same_value(tree, node, new):
                yield mutation(*change_operator(tree, node, new))

    return find


def _drop(kept: str) -> Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for node in tree.nodes("binary_expression", "call_expression"):
            if node.type == "call_expression":
                yield from _drop_from_fma(tree, node, kept)
                continue
            if operator(tree, node) not in ("+", "*"):
                continue
            if not (tree.is_float(node) or _is_value(tree, node)):
                continue
            left, right = field(node, "left"), field(node, "right")
            neutral = 0.0 if operator(tree, node) == "+" else 1.0
            if number(tree, right if kept == "left" else left) == neutral:
                continue
            if kept == "left" and tree.text(left) == tree.text(right):
                continue  # `d * d`: one of the two rules is enough
            if kept == "right":
                yield mutation(delete((node.start_byte, right.start_byte)))
            else:
                yield mutation(delete((left.end_byte, node.end_byte)))

    return find


def _drop_from_fma(tree: KernelTree, call: Node, kept: str) -> Iterator[Mutation]:
    given = arguments(call)
    if callee(tree, call) not in _FMA or len(given) != 3 or _accumulates(tree, call):
        return
    if kept == "right":
        yield mutation(replace(call, atom(tree, given[2])))
    elif callee(tree, call) == "__hfma":
        yield mutation(replace(call, f"__hmul({tree.text(given[0])}, {tree.text(given[1])})"))
    else:
        yield mutation(replace(call, f"({atom(tree, given[0])} * {atom(tree, given[1])})"))


def _swap_noncommutative(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression", "call_expression"):
        if node.type == "call_expression":
            if callee(tree, node) in ("__hsub", "__hdiv", "__fdividef"):
                one, two = arguments(node)
                yield mutation(*swap(tree, one, two))
            continue
        if operator(tree, node) not in ("-", "/"):
            continue
        if not (tree.is_float(node) or _is_value(tree, node)):
            continue
        left, right = field(node, "left"), field(node, "right")
        if tree.text(left) == tree.text(right) or is_sign_lost(tree, node):
            continue
        moved = tree.text(left)
        if left.type in ("binary_expression", "conditional_expression", "cast_expression"):
            moved = f"({moved})"
        yield mutation(replace(left, tree.text(right)), replace(right, moved))


_COMPOUND = {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="}
_SELECT = ("fmaxf", "fminf", "max", "min", "fmax", "fmin")


def _accumulations(tree: KernelTree) -> Iterator[Node]:
    """Assignments that update a value: no index, no loop counter, no pointer."""
    for node in tree.nodes("assignment_expression"):
        left = field(node, "left")
        if tree.kind(left) == "pointer" or in_bound(tree, node):
            continue
        if tree.is_integer(left) and tree.is_index(field(node, "right")):
            continue
        yield node


def _accumulate_to_assign(tree: KernelTree) -> Iterator[Mutation]:
    for node in _accumulations(tree):
        left, right = field(node, "left"), field(node, "right")
        if operator(tree, node) in ("+=", "*="):
            yield mutation(replace(field(node, "operator"), "="))
        elif operator(tree, node) == "=" and right.type == "call_expression":
            given = arguments(right)
            name = callee(tree, right)
            if name in _SELECT and len(given) == 2:
                target = tree.text(left)
                others = [g for g in given if tree.text(g) != target]
                if len(others) == 1:
                    yield mutation(replace(right, tree.text(others[0])))
            elif name in _FMA and len(given) == 3 and _accumulates(tree, right):
                if name == "__hfma":
                    text = f"__hmul({tree.text(given[0])}, {tree.text(given[1])})"
                else:
                    text = f"{atom(tree, given[0])} * {atom(tree, given[1])}"
                yield mutation(replace(right, text))


def _accumulate_sign(tree: KernelTree) -> Iterator[Mutation]:
    for node in _accumulations(tree):
        right = field(node, "right")
        old = operator(tree, node)
        if old in _COMPOUND and number(tree, right) != (0.0 if old in ("+=", "-=") else 1.0):
            yield mutation(replace(field(node, "operator"), _COMPOUND[old]))
        elif right.type == "call_expression" and callee(tree, right) in _FMA:
            given = arguments(right)
            if old == "=" and len(given) == 3 and _accumulates(tree, right):
                yield mutation(replace(given[0], f"-{atom(tree, given[0])}"))


def _operator_rule(id_: str, old: str, new: str, bug: str, *examples: Example) -> Rule:
    return Rule(
        id=id_,
        family="arithmetic",
        what=f"`a {old} b` to `a {new} b` on floating-point operands",
        bug=bug,
        find=_float_operator(old, new),
        examples=examples,
    )


def _integer_rule(id_: str, old: str, new: str, bug: str, *examples: Example) -> Rule:
    return Rule(
        id=id_,
        family="arithmetic",
        what=f"`a {old} b` to `a {new} b` on integers that are neither an index nor a bound",
        bug=bug,
        find=_integer_operator(old, new),
        examples=examples,
    )


_HALVES = "const half* x, half* y, int n"
_INTS = "const float* x, int* y, int n, int m"

#: The rules that name the term they drop.
_TERMS = (DROP_BIAS, DROP_SCALE, DROP_RESIDUAL, DROP_SQUARE, EPS_DROP)

RULES: tuple[Rule, ...] = (
    _operator_rule(
        "add-to-sub",
        "+",
        "-",
        "a term enters with the wrong sign, such as a subtracted bias",
        example(
            "y[threadIdx.x + 1] = x[n + 1] + 2.0f * x[0];",
            "y[threadIdx.x + 1] = x[n + 1] - 2.0f * x[0];",
        ),
        example("y[0] = __hadd(x[0], x[1]);", "y[0] = __hsub(x[0], x[1]);", params=_HALVES),
        example(
            "y[0] = fmaf(x[0], x[1], x[2] * x[3]);", "y[0] = fmaf(x[0], x[1], -(x[2] * x[3]));"
        ),
    ),
    _operator_rule(
        "sub-to-add",
        "-",
        "+",
        "a difference computed as a sum, such as the deviation from the mean",
        example("y[n - 1] = expf(x[0] - x[1]);", "y[n - 1] = expf(x[0] + x[1]);"),
    ),
    _operator_rule(
        "mul-to-div",
        "*",
        "/",
        "a scale and its reciprocal confused",
        example("y[n * 2] = x[0] * x[1] + x[2];", "y[n * 2] = x[0] / x[1] + x[2];"),
        example("y[0] = x[0] * 1.0f;"),
        example("y[0] = fmaf(x[0], x[1], x[2]);", "y[0] = (x[0] / x[1] + x[2]);"),
    ),
    _operator_rule(
        "div-to-mul",
        "/",
        "*",
        "a value multiplied by its norm instead of divided",
        example(
            "y[n / 2] = x[0] / x[1] / x[2];",
            "y[n / 2] = x[0] / x[1] * x[2];",
            "y[n / 2] = x[0] * x[1] / x[2];",
        ),
    ),
    _operator_rule(
        "mul-to-add",
        "*",
        "+",
        "a multiplicative factor added, such as a gate",
        example("y[0] = x[0] - x[1] * x[2];", "y[0] = x[0] - (x[1] + x[2]);"),
        example("y[0] = x[0] * x[1] + x[2];", "y[0] = x[0] + x[1] + x[2];"),
    ),
    _operator_rule(
        "add-to-mul",
        "+",
        "*",
        "a residual multiplied instead of added",
        example(
            "y[0] = x[0] + x[1] + x[2];",
            "y[0] = (x[0] + x[1]) * x[2];",
            "y[0] = x[0] * x[1] + x[2];",
        ),
    ),
    _integer_rule(
        "int-add-to-sub",
        "+",
        "-",
        "a count computed one way too small, such as a window's extent",
        example("y[n + m] = n + m;", "y[n + m] = n - m;", params=_INTS),
    ),
    _integer_rule(
        "int-mul-to-div",
        "*",
        "/",
        "an element count divided by an extent instead of multiplied",
        example(
            "float count = (float)(n * m);\ny[n * m] = (int)count;",
            "float count = (float)(n / m);\ny[n * m] = (int)count;",
            params=_INTS,
        ),
    ),
    _integer_rule(
        "mod-to-div",
        "%",
        "/",
        "quotient and remainder confused in a value, such as a parity",
        example("y[n % m] = n % m;", "y[n % m] = n / m;", params=_INTS),
    ),
    _integer_rule(
        "div-to-mod",
        "/",
        "%",
        "quotient and remainder confused in a value, such as a group number",
        example("y[n / m] = n / m;", "y[n / m] = n % m;", params=_INTS),
    ),
    Rule(
        id="accumulate-to-assign",
        family="arithmetic",
        what="`acc += e` to `acc = e`; `acc = fmaxf(acc, e)` to `acc = e`",
        bug="a reduction that keeps the last term only",
        find=_accumulate_to_assign,
        examples=(
            example(
                "float acc = 0.0f;\nfor (int i = 0; i < n; i += 2) acc += x[i];\ny[0] = acc;",
                "float acc = 0.0f;\nfor (int i = 0; i < n; i += 2) acc = x[i];\ny[0] = acc;",
            ),
            example(
                "float m = x[0];\nm = fmaxf(m, x[1]);\ny[0] = m;",
                "float m = x[0];\nm = x[1];\ny[0] = m;",
            ),
            example(
                "float acc = x[0];\nacc = fmaf(x[1], x[2], acc);\ny[0] = acc;",
                "float acc = x[0];\nacc = x[1] * x[2];\ny[0] = acc;",
            ),
        ),
    ),
    Rule(
        id="accumulate-sign",
        family="arithmetic",
        what="`acc += e` to `acc -= e`, `acc *= e` to `acc /= e`, and back",
        bug="a running sum or product that takes the inverse of each term",
        find=_accumulate_sign,
        examples=(
            example(
                "float acc = 0.0f;\nint i = 2;\ni += 2;\nacc += x[i];\nacc *= 2.0f;\ny[0] = acc;",
                "float acc = 0.0f;\nint i = 2;\ni += 2;\nacc -= x[i];\nacc *= 2.0f;\ny[0] = acc;",
                "float acc = 0.0f;\nint i = 2;\ni += 2;\nacc += x[i];\nacc /= 2.0f;\ny[0] = acc;",
            ),
            example(
                "float acc = 0.0f;\nacc = fmaf(x[0], x[1], acc);\ny[0] = acc;",
                "float acc = 0.0f;\nacc = fmaf(-x[0], x[1], acc);\ny[0] = acc;",
            ),
        ),
    ),
    Rule(
        id="drop-left-term",
        family="arithmetic",
        what="`a + b` to `b`, `a * b` to `b`, where no rule names the dropped term",
        bug="a forgotten term or factor",
        find=unless_owned(_drop("right"), *_TERMS),
        examples=(
            example(
                "y[n + 1] = expf(x[0]) * expf(x[1]) + expf(x[2]);",
                "y[n + 1] = expf(x[2]);",
                "y[n + 1] = expf(x[1]) + expf(x[2]);",
            ),
            example("y[n] = x[0] + expf(x[1]);"),
            example("y[0] = fmaf(x[0], x[1], x[2]);", "y[0] = x[2];"),
        ),
    ),
    Rule(
        id="drop-right-term",
        family="arithmetic",
        what="`a + b` to `a`, `a * b` to `a`, where no rule names the dropped term",
        bug="a forgotten term or factor",
        find=unless_owned(_drop("left"), *_TERMS),
        examples=(
            example(
                "y[n + 1] = expf(x[0]) * expf(x[1]) + expf(x[2]);",
                "y[n + 1] = expf(x[0]) * expf(x[1]);",
                "y[n + 1] = expf(x[0]) + expf(x[2]);",
            ),
            example("y[n] = expf(x[0]) + x[1];"),
            example("y[0] = fmaf(x[0], x[1], x[2]);", "y[0] = (x[0] * x[1]);"),
        ),
    ),
    Rule(
        id="swap-noncommutative",
        family="arithmetic",
        what="`a - b` to `b - a`, `a / b` to `b / a`",
        bug="operands in the wrong order, such as the mean minus the value",
        find=_swap_noncommutative,
        examples=(
            example(
                "y[n - 1] = (x[0] - x[1]) / x[2];",
                "y[n - 1] = x[2] / (x[0] - x[1]);",
                "y[n - 1] = (x[1] - x[0]) / x[2];",
            ),
            example("float d = x[0] - x[1];\ny[0] = d * d + fabsf(x[2] - x[3]);"),
            example(
                "y[0] = x[0] - x[1] - x[2];",
                "y[0] = x[2] - (x[0] - x[1]);",
                "y[0] = x[1] - x[0] - x[2];",
            ),
        ),
    ),
)
