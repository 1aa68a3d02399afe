"""Semantic faults of pointwise functions: activations, clamps, bases, thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.activations import MAX, MIN, activations, clamp_parts
from kernelassay.mutation.examples import example
from kernelassay.mutation.match import (
    atom,
    binary,
    call,
    number,
    parse_number,
    put,
    renaming,
    same,
    strip,
)
from kernelassay.mutation.nodes import arguments, callee, calls
from kernelassay.mutation.rule import Example, Mutation, Rule
from kernelassay.mutation.tree import KernelTree, mutation, replace

# Constants of nature are the Precision family's (low-precision-constant).
_CLASSICAL = (
    math.pi,
    math.pi / 2,
    math.tau,
    1 / math.pi,
    math.e,
    math.log2(math.e),
    math.log(2),
    math.sqrt(2),
    math.sqrt(0.5),
    math.log10(math.e),
    math.log(10),
)


def is_classical(value: float) -> bool:
    """Whether a literal spells pi, e, ln 2, sqrt 2 or one of their kin to four digits or more."""
    return any(abs(value - known) <= 2e-4 * known for known in _CLASSICAL)


def constants(tree: KernelTree) -> Iterator[tuple[Node, str, float]]:
    """Floating literals of device code and of ``#define`` lines: node, text, value."""
    for node in tree.nodes("preproc_def", "number_literal", within=tree.root):
        if tree.launcher.start_byte <= node.start_byte < tree.launcher.end_byte:
            continue
        found = node.child_by_field_name("value") if node.type == "preproc_def" else node
        if found is None:
            continue
        text = tree.text(found).strip()
        value = parse_number(text)
        is_real = "." in text or ("e" in text.lower() and not text.lower().startswith("0x"))
        if value is not None and is_real:
            yield found, text, value


def significant_digits(text: str) -> int:
    """How many digits of a literal count."""
    mantissa = text.rstrip("fFlL").lower().split("e")[0]
    return len(mantissa.replace(".", "").lstrip("0"))


def truncated(text: str, digits: int) -> str:
    """A decimal literal cut (not rounded) to ``digits`` significant digits."""
    suffix = text[len(text.rstrip("fFlL")) :]
    mantissa, _, exponent = text.rstrip("fFlL").lower().partition("e")
    kept, seen = "", 0
    for char in mantissa:
        if char.isdigit() and (seen or char != "0"):
            seen += 1
        kept += char if not char.isdigit() or seen <= digits else ("0" if "." not in kept else "")
    return kept + (f"e{exponent}" if exponent else "") + suffix


# -- activations ----------


def _drop_activation(tree: KernelTree) -> Iterator[Mutation]:
    for found in activations(tree):
        yield mutation(put(tree, found.node, tree.text(found.argument)))


def _replace_activation(tree: KernelTree) -> Iterator[Mutation]:
    for found in activations(tree):
        node, value = found.node, atom(tree, found.argument)
        zero, one = _suffixed(tree, node, "0.0"), _suffixed(tree, node, "1.0")
        match found.kind:
            case "relu":
                slope = _suffixed(tree, node, "0.01")
                text = f"({value} > {zero} ? {value} : {slope} * {value})"
            case "elu" | "leaky-relu":
                text = f"{_function(tree, node, 'fmax')}({tree.text(found.argument)}, {zero})"
            case "gelu-erf":
                exp = _suffixed(tree, node, "0.7978845608"), _suffixed(tree, node, "0.044715")
                cubic = f"{value} + {exp[1]} * {value} * {value} * {value}"
                half, tanh = _suffixed(tree, node, "0.5"), _function(tree, node, "tanh")
                text = f"({half} * {value} * ({one} + {tanh}({exp[0]} * ({cubic}))))"
            case "silu":
                text = f"({one} / ({one} + {_function(tree, node, 'exp')}(-{value})))"
            case "clamp" if not _is_relu6(tree, found.low, found.high):
                largest, smallest = _function(tree, node, "fmax"), _function(tree, node, "fmin")
                six = _suffixed(tree, node, "6.0")
                text = f"{smallest}({largest}({tree.text(found.argument)}, {zero}), {six})"
            case _:
                continue
        yield mutation(put(tree, node, text))


def _is_relu6(tree: KernelTree, low: Node | None, high: Node | None) -> bool:
    ends = [number(tree, end) for end in (low, high) if end is not None]
    return ends == [0.0, 6.0]


def _suffixed(tree: KernelTree, node: Node, literal: str) -> str:
    return literal if tree.kind(node) == "double" else f"{literal}f"


def _function(tree: KernelTree, node: Node, name: str) -> str:
    return name if tree.kind(node) == "double" else f"{name}f"


def _perturb_polynomial(tree: KernelTree) -> Iterator[Mutation]:
    for node, text, value in constants(tree):
        ordinary = 1e-3 < abs(value) < 1e6
        if ordinary and significant_digits(text) >= 4 and not is_classical(value):
            yield mutation(replace(node, truncated(text, 3)))


def _shift_threshold(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression", "call_expression"):
        if node.type == "binary_expression":
            sides = binary(tree, node, "<", ">", "<=", ">=")
            if not sides or not all(tree.is_float(s) for s in sides):
                continue
            for side in sides:
                if _is_threshold(tree, side):
                    yield mutation(put(tree, side, _moved(tree, side)))
        elif callee(tree, node) in (*MAX, *MIN) and tree.is_float(node):
            for side in arguments(node):
                if _is_threshold(tree, side):
                    yield mutation(put(tree, side, _moved(tree, side)))


def _is_threshold(tree: KernelTree, node: Node) -> bool:
    value = number(tree, node)
    if value is not None:
        return value == 0 or 1e-4 < abs(value) < 1e6
    node = strip(node)
    if tree.function(node) not in tree.kernels:
        return False  # an operand of a helper
    scalars = {p.name for p in tree.parameters(tree.function(node)) if not p.is_pointer}
    return node.type == "identifier" and tree.text(node) in scalars


def _moved(tree: KernelTree, node: Node) -> str:
    """A threshold moved by a sixteenth of its size (of 1, if it is 0 or not known)."""
    value = number(tree, node)
    if value is None:
        return f"({tree.text(node)} + {_suffixed(tree, node, '0.0625')})"
    return _suffixed(tree, node, repr(value + (abs(value) or 1.0) / 16))


def _clamp_bound_drop(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("call_expression"):
        parts = clamp_parts(tree, node)
        if parts:
            value, low, high = (tree.text(part) for part in parts)
            outer, inner = callee(tree, node), _inner_name(tree, node)
            largest, smallest = (inner, outer) if outer in MIN else (outer, inner)
            yield mutation(replace(node, f"{largest}({value}, {low})"))
            yield mutation(replace(node, f"{smallest}({value}, {high})"))


def _inner_name(tree: KernelTree, node: Node) -> str:
    wanted = MAX if callee(tree, node) in MIN else MIN
    return next(callee(tree, strip(a)) for a in arguments(node) if call(tree, a, *wanted))


# -- bases, complements, powers ----------


def _one_minus(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression"):
        sides = binary(tree, node, "-")
        if sides and number(tree, sides[0]) == 1 and tree.is_float(node):
            yield mutation(put(tree, node, atom(tree, sides[1])))


def _drop_abs(tree: KernelTree) -> Iterator[Mutation]:
    for node in calls(tree, "fabsf", "fabs", "abs"):
        if tree.is_float(node):
            yield mutation(put(tree, node, tree.text(arguments(node)[0])))


def _drop_square(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression", "call_expression"):
        if not tree.is_float(node):
            continue
        sides = binary(tree, node, "*") if node.type == "binary_expression" else None
        given = call(tree, node, "powf", "pow", "__powf")
        if sides and same(tree, *sides):
            yield mutation(put(tree, node, tree.text(sides[0])))
        elif given and number(tree, given[1]) == 2:
            yield mutation(put(tree, node, tree.text(given[0])))


_V = "    float v = x[threadIdx.x];\n"


def _store(value: str) -> str:
    return f"{_V}    y[threadIdx.x] = {value};"


def _pointwise(before: str, *after: str) -> Example:
    """An example whose only difference is the stored value of ``v``."""
    return example(_store(before), *map(_store, after))


DROP_ACTIVATION = Rule(
    "drop-activation",
    "semantic",
    "an activation or a clamp becomes its argument",
    "the fused activation was forgotten",
    _drop_activation,
    (
        _pointwise("fmaxf(v, 0.0f)", "v"),
        _pointwise("0.5f * v * (1.0f + erff(v * 0.70710678f))", "v"),
        _pointwise("1.0f / (1.0f + expf(-v))", "v"),
        _pointwise("v * tanhf(log1pf(expf(v)))", "v"),
        _pointwise("fminf(fmaxf(v + 3.0f, 0.0f), 6.0f)", "v + 3.0f"),
    ),
)
REPLACE_ACTIVATION = Rule(
    "replace-activation",
    "semantic",
    "relu to leaky relu, gelu to its tanh form, silu to sigmoid, elu and leaky relu to relu, "
    "a clamp to relu6",
    "a near relative of the activation that the reference asks for",
    _replace_activation,
    (
        _pointwise("fmaxf(v, 0.0f)", "(v > 0.0f ? v : 0.01f * v)"),
        _pointwise("v / (1.0f + expf(-v))", "(1.0f / (1.0f + expf(-v)))"),
        _pointwise("v > 0.0f ? v : expm1f(v)", "fmaxf(v, 0.0f)"),
        _pointwise("fminf(fmaxf(v, -1.0f), 1.0f)", "fminf(fmaxf(v, 0.0f), 6.0f)"),
        _pointwise(
            "0.5f * v * (1.0f + erff(v * 0.70710678f))",
            "(0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v))))",
        ),
    ),
)
PERTURB_POLYNOMIAL = Rule(
    "perturb-polynomial",
    "semantic",
    "a coefficient of four digits or more is cut to three",
    "a coefficient of an approximation copied with too few digits",
    _perturb_polynomial,
    (_pointwise("tanhf(v + 0.044715f * v * v * v)", "tanhf(v + 0.0447f * v * v * v)"),),
)
SHIFT_THRESHOLD = Rule(
    "shift-threshold",
    "semantic",
    "a float threshold moves by a sixteenth of its size (of 1, if it is 0)",
    "the corner of a piecewise function lies at the wrong place",
    _shift_threshold,
    (
        _pointwise("v > 0.0f ? v : 0.01f * v", "v > 0.0625f ? v : 0.01f * v"),
        _pointwise(
            "fminf(fmaxf(v, -1.0f), 1.0f)",
            "fminf(fmaxf(v, -1.0f), 1.0625f)",
            "fminf(fmaxf(v, -0.9375f), 1.0f)",
        ),
    ),
)
CLAMP_BOUND_DROP = Rule(
    "clamp-bound-drop",
    "semantic",
    "one side of a clamp is removed",
    "a clamp that only looks at one end",
    _clamp_bound_drop,
    (_pointwise("fminf(fmaxf(v, -1.0f), 1.0f)", "fmaxf(v, -1.0f)", "fminf(v, 1.0f)"),),
)
EXP_BASE = Rule(
    "exp-base",
    "semantic",
    "expf and exp2f exchanged",
    "base-2 exponentials without the factor log2(e), or with it left over",
    renaming({"expf": "exp2f", "exp2f": "expf", "__expf": "exp2f", "exp": "exp2", "exp2": "exp"}),
    (_pointwise("expf(v)", "exp2f(v)"),),
)
LOG_BASE = Rule(
    "log-base",
    "semantic",
    "logf and log2f exchanged; log10f to logf",
    "a logarithm of the wrong base",
    renaming(
        {"logf": "log2f", "log2f": "logf", "log10f": "logf", "__logf": "log2f", "log": "log2"}
    ),
    (_pointwise("logf(v)", "log2f(v)"),),
)
ONE_MINUS = Rule(
    "one-minus",
    "semantic",
    "`1 - p` to `p`",
    "the complement of a probability or a weight forgotten",
    _one_minus,
    (_pointwise("(1.0f - v) * 2.0f", "(v) * 2.0f"),),
)
DROP_ABS = Rule(
    "drop-abs",
    "semantic",
    "`fabsf(e)` to `e`",
    "signed differences summed as if they were distances",
    _drop_abs,
    (_pointwise("2.0f * fabsf(v - 1.0f)", "2.0f * (v - 1.0f)"),),
)
DROP_SQUARE = Rule(
    "drop-square",
    "semantic",
    "`e * e` and `powf(e, 2)` to `e`",
    "a sum of squares without the square",
    _drop_square,
    (_pointwise("v * v + 1.0f", "v + 1.0f"), _pointwise("powf(v, 2.0f)", "v")),
)
