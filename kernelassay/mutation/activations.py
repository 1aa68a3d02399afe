"""Recognising the activation functions of a kernel, in the spellings kernel authors use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernelassay.mutation.match import binary, call, number, same, strip
from kernelassay.mutation.nodes import arguments, callee, field, names_in, operator
from kernelassay.mutation.tree import KernelTree

MAX = ("fmaxf", "fmax", "max")
MIN = ("fminf", "fmin", "min")
EXP = ("expf", "exp", "__expf")
ERF = ("erff", "erf")
TANH = ("tanhf", "tanh")
_NAMED = re.compile(
    r"(relu|gelu|silu|swish|sigmoid|tanh|elu|softplus|softsign|mish|hardtanh|hardswish|"
    r"activation|activate)"
)


@dataclass(frozen=True, slots=True)
class Activation:
    """An expression that is ``kind`` of ``argument``; a clamp also has ``low`` and ``high``."""

    node: Node
    kind: str
    argument: Node
    low: Node | None = None
    high: Node | None = None


def activations(tree: KernelTree) -> Iterator[Activation]:
    """The activations of device code, outermost first, in source order.

    What is a part of a larger activation (the ``tanhf`` of a gelu) is not reported again; the
    argument may hold further ones.
    """
    covered: list[Activation] = []
    for node in tree.nodes("call_expression", "binary_expression", "conditional_expression"):
        found = recognise(tree, node)
        if found is None:
            continue
        if any(_holds(a.node, node) and not _holds(a.argument, node) for a in covered):
            continue
        covered.append(found)
        yield found


def _holds(outer: Node, inner: Node) -> bool:
    return outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte


def recognise(tree: KernelTree, node: Node) -> Activation | None:
    """What activation, if any, the expression ``node`` is."""
    if not tree.is_float(node):
        return None
    for pattern in (_clamp, _relu, _piecewise, _gated, _gelu, _called):
        found = pattern(tree, node)
        if found is not None:
            return found
    return None


def clamp_parts(tree: KernelTree, node: Node) -> tuple[Node, Node, Node] | None:
    """``(value, low, high)`` of ``fminf(fmaxf(value, low), high)`` in any order."""
    for outer, inner in ((MIN, MAX), (MAX, MIN)):
        outside = call(tree, node, *outer)
        if not outside or len(outside) != 2:
            continue
        for nested, bound in (outside, outside[::-1]):
            inside = call(tree, nested, *inner)
            if inside and len(inside) == 2:
                value, other = inside if not _is_constant(tree, inside[0]) else inside[::-1]
                return (value, other, bound) if outer == MIN else (value, bound, other)
    return None


def _is_constant(tree: KernelTree, node: Node) -> bool:
    return number(tree, node) is not None


def _clamp(tree: KernelTree, node: Node) -> Activation | None:
    parts = clamp_parts(tree, node)
    return Activation(node, "clamp", *parts) if parts else None


def _relu(tree: KernelTree, node: Node) -> Activation | None:
    given = call(tree, node, *MAX)
    if node.type == "call_expression" and given and len(given) == 2:
        for value, bound in (given, given[::-1]):
            if number(tree, bound) == 0 and number(tree, value) is None:
                return Activation(node, "relu", value)
    return None


def _piecewise(tree: KernelTree, node: Node) -> Activation | None:
    """``v > 0 ? v : f(v)``: relu, leaky relu, elu, softplus with its threshold."""
    if node.type != "conditional_expression":
        return None
    sides = binary(tree, field(node, "condition"), ">", ">=")
    if not sides or number(tree, sides[1]) is None:
        return None
    positive, negative = field(node, "consequence"), field(node, "alternative")
    value = _factor_like(tree, positive, sides[0])
    if value is None:
        return None
    if any(callee(tree, n) in ("log1pf", "log1p") for n in _calls(tree, negative)):
        return Activation(node, "softplus", value)
    if number(tree, negative) == 0:
        return Activation(node, "relu", value)
    if any(callee(tree, n) in ("expm1f", "expm1", *EXP) for n in _calls(tree, negative)):
        return Activation(node, "elu", value)
    factors = binary(tree, negative, "*")
    if factors and any(same(tree, f, value) for f in factors):
        return Activation(node, "leaky-relu", value)
    return None


def _factor_like(tree: KernelTree, positive: Node, tested: Node) -> Node | None:
    """The value in ``v`` or ``scale * v`` that the condition tests too."""
    factors = binary(tree, positive, "*") or (positive,)
    tested_names = names_in(tree, tested)
    for factor in factors:
        stripped = strip(factor)
        if stripped.type == "identifier" and tree.text(stripped) in tested_names:
            return stripped
        if same(tree, factor, tested):
            return factor
    return None


def _calls(tree: KernelTree, node: Node) -> Iterator[Node]:
    return tree.nodes("call_expression", within=node)


def logistic_argument(tree: KernelTree, node: Node) -> Node | None:
    """``v`` of ``1 + expf(-v)``."""
    sides = binary(tree, node, "+")
    for one, other in (sides, sides[::-1]) if sides else ():
        given = call(tree, other, *EXP)
        if number(tree, one) == 1 and given:
            inner = strip(given[0])
            if inner.type == "unary_expression" and operator(tree, inner) == "-":
                return field(inner, "argument")
    return None


def _gated(tree: KernelTree, node: Node) -> Activation | None:
    """``1 / (1 + expf(-v))``: sigmoid; ``v / (1 + expf(-v))``: silu."""
    if node.type != "binary_expression":
        return None
    sides = binary(tree, node, "/")
    value = logistic_argument(tree, sides[1]) if sides else None
    if sides and value is not None:
        if number(tree, sides[0]) == 1:
            return Activation(node, "sigmoid", value)
        if same(tree, sides[0], value):
            return Activation(node, "silu", sides[0])
    return None


def factors_of(tree: KernelTree, node: Node) -> list[Node]:
    """The factors of a product, left to right."""
    node = strip(node)
    sides = binary(tree, node, "*")
    if not sides:
        return [node]
    return [*factors_of(tree, sides[0]), *factors_of(tree, sides[1])]


def _gelu(tree: KernelTree, node: Node) -> Activation | None:
    """``0.5 * v * (1 + erff(...))`` and the tanh form; ``v * tanhf(log1pf(...))``: mish."""
    parent = tree.parent(node)
    if binary(tree, node, "*") is None or node.type != "binary_expression":
        return None
    if parent is not None and parent.type == "binary_expression" and operator(tree, parent) == "*":
        return None  # a part of a longer product
    factors = factors_of(tree, node)
    values = [f for f in factors if f.type in ("identifier", "subscript_expression")]
    if len(values) != 1:
        return None
    for factor in factors:
        sides = binary(tree, factor, "+")
        if sides and any(number(tree, s) == 1 for s in sides):
            for side in sides:
                if call(tree, side, *ERF):
                    return Activation(node, "gelu-erf", values[0])
                if call(tree, side, *TANH):
                    return Activation(node, "gelu-tanh", values[0])
        inner = call(tree, factor, *TANH)
        if inner and call(tree, inner[0], "log1pf", "log1p", "softplus"):
            return Activation(node, "mish", values[0])
    return None


def _called(tree: KernelTree, node: Node) -> Activation | None:
    """A call of ``tanhf``, of ``log1pf(expf(v))``, or of a helper named as an activation."""
    name, given = callee(tree, node), arguments(node) if node.type == "call_expression" else []
    if name in TANH:
        return Activation(node, "tanh", given[0])
    if name in ("log1pf", "log1p"):
        inner = call(tree, given[0], *EXP)
        return Activation(node, "softplus", inner[0]) if inner else None
    helpers = {tree.name(f) for f in tree.device_functions}
    if given and name in helpers and _NAMED.search(name):
        return Activation(node, "helper", given[0])
    return None
