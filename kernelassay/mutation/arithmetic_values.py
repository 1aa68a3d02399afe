"""Arithmetic rules that change a constant, a sign or a condition."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.examples import example, kernel
from kernelassay.mutation.fills import is_immaterial
from kernelassay.mutation.nodes import callee, field, operator
from kernelassay.mutation.ownership import unless_owned
from kernelassay.mutation.rule import Example, Find, Mutation, Rule
from kernelassay.mutation.semantic_activation import SHIFT_THRESHOLD
from kernelassay.mutation.semantic_reduction import INIT_IDENTITY
from kernelassay.mutation.silent import is_free_choice, is_weightless
from kernelassay.mutation.sites import (
    arguments,
    atom,
    bare,
    change_operator,
    in_bound,
    number,
    outer,
)
from kernelassay.mutation.tree import KernelTree, delete, insert, mutation, replace
from kernelassay.mutation.uniformity import interchangeable

_FLOAT_MAX = 3.4028235e38
#: Start values of a maximum or minimum; a sixteenth more or less is the same start value.
_SENTINEL = 1e30


def _float_constant(factor: float, instead_of_zero: float) -> Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for node in tree.nodes("number_literal"):
            value = number(tree, node)
            if not tree.is_float(node) or value is None or abs(value) >= _SENTINEL:
                continue
            if value == 0.0 and instead_of_zero > 0.0 and _starts_accumulator(tree, node):
                continue
            if is_weightless(tree, node) or is_immaterial(tree, node):
                continue
            new = instead_of_zero if value == 0.0 else value * factor
            if math.isfinite(new) and abs(new) <= _FLOAT_MAX:
                yield mutation(replace(node, _spell(new, tree.text(node))))

    return find


def _starts_accumulator(tree: KernelTree, literal: Node) -> bool:
    """Whether a literal is the start value of a sum: the rule init-identity owns it."""
    parent = tree.parent(literal)
    if parent is None or parent.type != "init_declarator":
        return False
    name = tree.text(field(parent, "declarator"))
    function = tree.function(literal)
    for node in tree.nodes("assignment_expression", within=function):
        if tree.text(field(node, "left")) != name:
            continue
        if operator(tree, node) != "=" or name in {
            tree.text(inner) for inner in tree.nodes("identifier", within=field(node, "right"))
        }:
            return True
    return False


def _spell(value: float, like: str) -> str:
    """A literal for ``value`` with the suffix of the literal ``like``."""
    suffix = like[-1] if like[-1] in "fF" else ""
    return (
        f"{value:.9g}{suffix}"
        if "." in f"{value:.9g}" or "e" in f"{value:.9g}"
        else (f"{value:.1f}{suffix}")
    )


def _integer_constant(step: int) -> Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for node in tree.nodes("number_literal"):
            text = tree.text(node)
            if not tree.is_integer(node) or not text.lstrip("-").isdigit():
                continue  # hexadecimal and suffixed literals are masks
            if tree.is_index(node) or in_bound(tree, node) or _is_structural(tree, node):
                continue
            if is_free_choice(tree, node, step):
                continue
            yield mutation(replace(node, str(int(text) + step)))

    return find


def _is_structural(tree: KernelTree, node: Node) -> bool:
    """Whether a literal is an array size, a template argument or a warp primitive's operand."""
    if tree.enclosing(node, "array_declarator", "template_argument_list") is not None:
        return True
    call = tree.enclosing(node, "call_expression", "expression_statement")
    if call is None or call.type != "call_expression":
        return False
    name = callee(tree, call)
    return name.endswith("_sync") or name.startswith("__sync")


_MULTIPLICATIVE = ("*", "/")
_EVEN = frozenset({"fabsf", "fabs", "cosf", "cos", "coshf", "cosh", "abs"})
_ONE_ARGUMENT = frozenset(
    (
        *("expf", "exp", "exp2f", "expm1f", "logf", "log", "log2f", "log1pf", "__expf", "__logf"),
        *("sqrtf", "sqrt", "rsqrtf", "rsqrt", "tanhf", "tanh", "sinf", "sin", "erff", "erf"),
        *("hexp", "hlog", "hsqrt", "floorf", "ceilf"),
    )
)


def _negate_operand(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression", "unary_expression", "call_expression"):
        if node.type == "unary_expression":
            if operator(tree, node) == "-" and tree.is_float(node):
                argument = field(node, "argument")
                yield mutation(delete((node.start_byte, argument.start_byte)))
        elif node.type == "call_expression":
            given = arguments(node)
            if callee(tree, node) not in _ONE_ARGUMENT or len(given) != 1:
                continue
            signed = bare(given[0]).type == "unary_expression"
            if not signed and not _is_difference(tree, given[0]):
                yield mutation(replace(given[0], f"-{atom(tree, given[0])}"))
        elif tree.is_float(node) and _owns_sign(tree, node):
            left = field(node, "left")
            if number(tree, left) != 0.0 and left.type != "unary_expression":
                yield mutation(replace(left, f"-{atom(tree, left)}"))


def _is_difference(tree: KernelTree, node: Node) -> bool:
    """Negating ``a - b`` is swap-noncommutative's rewrite."""
    inner = bare(node)
    return inner.type == "binary_expression" and operator(tree, inner) == "-"


def _owns_sign(tree: KernelTree, node: Node) -> bool:
    """Whether negating the left operand gives a value no other rewrite of signs gives.

    The sign of a product is one sign however many factors it has, and under ``+``, ``-``, ``+=``
    or ``-=`` it is the sign of that term, which other rules change.
    """
    symbol = operator(tree, node)
    if symbol in ("+", "-"):
        return True
    if symbol not in _MULTIPLICATIVE:
        return False
    parent = tree.parent(outer(tree, node))
    if parent is None:
        return False
    if parent.type == "binary_expression":
        return operator(tree, parent) not in ("+", "-", "*", "/")
    if parent.type == "assignment_expression":
        return operator(tree, parent) == "="
    if parent.type == "argument_list":
        call = tree.parent(parent)
        # The call's own argument is negated as a whole; even functions do not see the sign.
        return call is None or callee(tree, call) not in _EVEN | _ONE_ARGUMENT
    return parent.type != "unary_expression"


_FLIPPED = {"<": ">=", ">": "<=", "==": "!=", "<=": ">", ">=": "<", "!=": "=="}


def _flips(tree: KernelTree, node: Node) -> bool:
    return (
        node.type == "binary_expression"
        and operator(tree, node) in _FLIPPED
        and not in_bound(tree, node)
        and not tree.is_index(node)
    )


def _relational_flip(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression"):
        if _flips(tree, node) and not interchangeable(tree, node, several=True):
            yield mutation(replace(field(node, "operator"), _FLIPPED[operator(tree, node)]))


def _logical_swap(tree: KernelTree) -> Iterator[Mutation]:
    other = {"&&": "||", "||": "&&"}
    for node in tree.nodes("binary_expression"):
        symbol = operator(tree, node)
        if symbol in other:
            yield mutation(*change_operator(tree, node, other[symbol]))


def _negate_condition(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("if_statement", "conditional_expression"):
        if node.type == "if_statement":
            clause = field(node, "condition")
            condition = clause.child_by_field_name("value")
            if condition is None or _has_exact_opposite(tree, condition):
                continue
            if condition.type == "unary_expression" and operator(tree, condition) == "!":
                yield mutation(replace(condition, tree.text(field(condition, "argument"))))
                continue
            yield mutation(insert(condition.start_byte, "!("), insert(condition.end_byte, ")"))
        else:
            condition = field(node, "condition")
            one, two = field(node, "consequence"), field(node, "alternative")
            if tree.is_integer(node) and tree.is_index(node):
                continue
            if tree.text(one) == tree.text(two) or _has_exact_opposite(tree, condition):
                continue
            if two.type == "conditional_expression":
                # Chained: the alternative keeps its place behind the colon only in parentheses.
                yield mutation(replace(one, f"({tree.text(two)})"), replace(two, tree.text(one)))
            else:
                yield mutation(replace(one, tree.text(two)), replace(two, tree.text(one)))


def _has_exact_opposite(tree: KernelTree, condition: Node) -> bool:
    """Whether relational-flip makes the very opposite: integers, and any equality."""
    inner = bare(condition)
    if not _flips(tree, inner):
        return False
    if operator(tree, inner) in ("==", "!="):
        return True
    sides = field(inner, "left"), field(inner, "right")
    return all(tree.kind(side) in ("int", "long", "bool") for side in sides)


def _moments(start: str) -> str:
    return kernel(
        f"Moments m = {start};\ny[0] = m.mean + x[n];",
        before="struct Moments { float count; float mean; float m2; };",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id="float-const-plus",
        family="arithmetic",
        what="a floating-point literal c to c * (1 + 2^-4); 0 to 1",
        bug="a constant copied wrongly, such as an epsilon or an activation's coefficient",
        find=unless_owned(_float_constant(1.0625, 1.0), SHIFT_THRESHOLD, INIT_IDENTITY),
        examples=(
            example(
                "float s = 0.0f;\ns += x[0] * 0.5f;\ny[0] = fmaxf(s, 0.0f) + 1e-5f;",
                "float s = 0.0f;\ns += x[0] * 0.53125f;\ny[0] = fmaxf(s, 0.0f) + 1e-5f;",
                "float s = 0.0f;\ns += x[0] * 0.5f;\ny[0] = fmaxf(s, 1.0f) + 1e-5f;",
                "float s = 0.0f;\ns += x[0] * 0.5f;\ny[0] = fmaxf(s, 0.0f) + 1.0625e-05f;",
            ),
            example("float m = -1e38f;\ny[0] = fmaxf(m, x[0]);"),
            Example(
                _moments("{0.0f, 0.0f, 0.0f}"),
                (_moments("{1.0f, 0.0f, 0.0f}"), _moments("{0.0f, 0.0f, 1.0f}")),
            ),
        ),
    ),
    Rule(
        id="float-const-minus",
        family="arithmetic",
        what="a floating-point literal c to c * (1 - 2^-4); 0 to -1",
        bug="a constant copied wrongly, on the other side of its value",
        find=unless_owned(_float_constant(0.9375, -1.0), SHIFT_THRESHOLD, INIT_IDENTITY),
        examples=(
            example(
                "y[0] = x[0] > 0.0f ? x[0] : 2.0f * x[0];",
                "y[0] = x[0] > -1.0f ? x[0] : 2.0f * x[0];",
                "y[0] = x[0] > 0.0f ? x[0] : 1.875f * x[0];",
            ),
        ),
    ),
    Rule(
        id="int-const-plus-one",
        family="arithmetic",
        what="an integer literal c, no index, bound or size, to c + 1",
        bug="an off-by-one in a constant, such as the thread that stores a result",
        find=_integer_constant(1),
        examples=(
            example(
                "if (threadIdx.x == 0) y[3] = x[threadIdx.x] * 2;",
                "if (threadIdx.x == 1) y[3] = x[threadIdx.x] * 2;",
                "if (threadIdx.x == 0) y[3] = x[threadIdx.x] * 3;",
            ),
            example(
                "if (threadIdx.x == 0) y[3] = x[n] * 2;",
                "if (threadIdx.x == 0) y[3] = x[n] * 3;",
            ),
        ),
    ),
    Rule(
        id="int-const-minus-one",
        family="arithmetic",
        what="an integer literal c, no index, bound or size, to c - 1",
        bug="an off-by-one in a constant, on the other side",
        find=_integer_constant(-1),
        examples=(
            example(
                "for (int i = 0; i < n - 1; i++) y[i] = (float)(n - 2);",
                "for (int i = 0; i < n - 1; i++) y[i] = (float)(n - 1);",
            ),
        ),
    ),
    Rule(
        id="negate-operand",
        family="arithmetic",
        what="`e` to `-e` under a floating-point operator or function, and `-e` to `e`",
        bug="a lost or added minus sign, such as in the exponent of a sigmoid",
        find=_negate_operand,
        examples=(
            example("y[0] = x[0] * x[1] + x[2];", "y[0] = -(x[0] * x[1]) + x[2];"),
            example(
                "y[0] = 1.0f / (1.0f + expf(-x[0]));",
                "y[0] = -1.0f / (1.0f + expf(-x[0]));",
                "y[0] = 1.0f / (-1.0f + expf(-x[0]));",
                "y[0] = 1.0f / (1.0f + expf(x[0]));",
            ),
            example("y[0] = tanhf(x[0] * x[1]);", "y[0] = tanhf(-(x[0] * x[1]));"),
        ),
    ),
    Rule(
        id="relational-flip",
        family="arithmetic",
        what="a comparison that is no bound test to its opposite: `<` to `>=`, `==` to `!=`",
        bug="an inverted test, such as the slope side of a leaky activation",
        find=_relational_flip,
        examples=(
            example(
                "int i = threadIdx.x;\nif (i < n) y[i] = x[i] > 0.0f ? x[i] : 0.0f;",
                "int i = threadIdx.x;\nif (i < n) y[i] = x[i] <= 0.0f ? x[i] : 0.0f;",
            ),
            example(
                "float v = x[threadIdx.x];\nif (threadIdx.x == 0) y[0] = v;",
                "float v = x[threadIdx.x];\nif (threadIdx.x != 0) y[0] = v;",
            ),
            example("if (threadIdx.x == 0) y[0] = x[0];"),
        ),
    ),
    Rule(
        id="logical-swap",
        family="arithmetic",
        what="`&&` to `||` and back",
        bug="a compound condition that holds too often or too rarely",
        find=_logical_swap,
        examples=(
            example(
                "if (x[0] > x[1] && x[1] > x[2]) y[0] = x[0];",
                "if (x[0] > x[1] || x[1] > x[2]) y[0] = x[0];",
            ),
            example(
                "if (n > 1 || n > 2 || n > 3) y[0] = x[0];",
                "if ((n > 1 || n > 2) && n > 3) y[0] = x[0];",
                "if (n > 1 && n > 2 || n > 3) y[0] = x[0];",
            ),
        ),
    ),
    Rule(
        id="negate-condition",
        family="arithmetic",
        what="`if (c)` to `if (!(c))`; `c ? a : b` to `c ? b : a`",
        bug="the two branches exchanged",
        find=_negate_condition,
        examples=(
            example(
                "if (x[0] > 0.0f) y[0] = x[1] < 0.0f ? x[1] : x[2];",
                "if (!(x[0] > 0.0f)) y[0] = x[1] < 0.0f ? x[1] : x[2];",
                "if (x[0] > 0.0f) y[0] = x[1] < 0.0f ? x[2] : x[1];",
            ),
            example(
                "bool on = x[0] > 0.0f;\nif (!on) y[0] = x[1];",
                "bool on = x[0] > 0.0f;\nif (on) y[0] = x[1];",
            ),
            example("if (threadIdx.x == 0) y[0] = x[0];"),
        ),
    ),
)
