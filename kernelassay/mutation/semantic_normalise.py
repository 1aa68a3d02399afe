"""Semantic faults of softmax, attention and masks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from tree_sitter import Node

from kernelassay.mutation.activations import EXP
from kernelassay.mutation.examples import ROWS, example
from kernelassay.mutation.match import (
    LOOPS,
    binary,
    call,
    definition,
    number,
    put,
    resolve,
    strip,
    updates,
)
from kernelassay.mutation.nodes import calls, field, names_in, operator
from kernelassay.mutation.rule import Mutation, Rule
from kernelassay.mutation.semantic_divisors import is_count
from kernelassay.mutation.tree import KernelTree, mutation, replace

SQRT = ("sqrtf", "sqrt", "__fsqrt_rn")
RSQRT = ("rsqrtf", "rsqrt")
_LOG = ("logf", "log", "__logf")
_EXPONENTIALS = (*EXP, "exp2f", "exp2")
_FLIPPED = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}


# -- softmax and attention ----------


def _has_exponential(tree: KernelTree, function: Node) -> bool:
    return any(calls(tree, *_EXPONENTIALS, within=function))


def _softmax_drop_normalise(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression"):
        function = tree.function(node)
        if not tree.is_float(node) or not _has_exponential(tree, function):
            continue
        if not _reduces(tree, function):
            continue
        sides = binary(tree, node, "/")
        if sides and number(tree, sides[0]) is None and _is_total(tree, sides[1]):
            yield mutation(put(tree, node, tree.text(sides[0])))
        for kept, factor in both_ways(binary(tree, node, "*")):
            inverse = binary(tree, resolve(tree, factor), "/")
            is_inverse = inverse is not None and number(tree, inverse[0]) == 1
            if factor.type == "identifier" and inverse and is_inverse:
                if not _is_total(tree, inverse[1]):
                    continue
                yield mutation(put(tree, node, tree.text(kept)))
        sides = binary(tree, node, "-")
        if sides and call(tree, resolve(tree, sides[1]), *_LOG):
            yield mutation(put(tree, node, tree.text(sides[0])))


def both_ways(sides: tuple[Node, Node] | None) -> tuple[tuple[Node, Node], ...]:
    """Two sides of an operator in both orders; nothing for None."""
    return (sides, (sides[1], sides[0])) if sides else ()


def _reduces(tree: KernelTree, function: Node) -> bool:
    has_loop = any(tree.nodes(*LOOPS, within=function))
    return has_loop and any(updates(tree, function))


def _is_total(tree: KernelTree, node: Node) -> bool:
    """Whether a divisor is a computed float: a variable or an element, no count, no sum."""
    node = strip(node)
    if node.type not in ("identifier", "subscript_expression"):
        return False
    if not tree.is_float(node) or is_count(tree, node):
        return False
    scalars = {p.name for p in tree.parameters(tree.function(node)) if not p.is_pointer}
    return tree.text(node) not in scalars


def _is_root_of_count(tree: KernelTree, node: Node) -> bool:
    """Whether ``node`` is, or names, ``sqrtf(d)`` of an integer ``d``."""
    given = call(tree, resolve(tree, node), *SQRT)
    return bool(given) and is_count(tree, given[0]) if given else False


def is_attention_scale(tree: KernelTree, node: Node) -> bool:
    """Whether a factor is 1/sqrt(d): spelled, or a scalar ``scale`` of a kernel with a softmax."""
    function, source = tree.function(node), resolve(tree, node)
    given = call(tree, source, *RSQRT)
    if given and is_count(tree, given[0]):
        return True
    inverse = binary(tree, source, "/")
    if inverse and number(tree, inverse[0]) == 1 and _is_root_of_count(tree, inverse[1]):
        return True
    scalars = {p.name for p in tree.parameters(function) if p.kind == "float"}
    is_scale = source.type == "identifier" and tree.text(source) in scalars
    return is_scale and "scale" in tree.text(source) and _has_exponential(tree, function)


def _attention_drop_scale(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression", "assignment_expression"):
        if node.type == "assignment_expression":
            factor = field(node, "right")
            if operator(tree, node) == "*=" and is_attention_scale(tree, factor):
                yield mutation(replace(factor, "1.0f"))
            continue
        for kept, factor in both_ways(binary(tree, node, "*")):
            if is_attention_scale(tree, factor):
                yield mutation(put(tree, node, tree.text(kept)))
        sides = binary(tree, node, "/")
        if sides and number(tree, sides[0]) is None and _is_root_of_count(tree, sides[1]):
            yield mutation(put(tree, node, tree.text(sides[0])))


def _masks(tree: KernelTree) -> Iterator[Node]:
    """Orderings of two positions, neither a size nor a constant, that choose between values."""
    for node in tree.nodes("binary_expression"):
        sides = binary(tree, node, *_FLIPPED)
        if not sides or not all(tree.is_integer(s) for s in sides):
            continue
        if _is_stored_test(tree, node) and any(_is_offset(tree, side) for side in sides):
            yield node
            continue
        function = tree.function(node)
        sizes = set(tree.size_parameters(function))
        if any(number(tree, s) is not None or _is_extent(tree, s, sizes) for s in sides):
            continue
        if "threadIdx" in tree.text(node) or "blockDim" in tree.text(node):
            continue
        if all(_is_position(tree, side) for side in sides) and _is_value_choice(tree, node):
            yield node


def _is_stored_test(tree: KernelTree, node: Node) -> bool:
    """Whether a test is kept in a bool variable: a step of a fused kernel."""
    parent = tree.parent(node)
    return (
        parent is not None
        and parent.type == "init_declarator"
        and tree.kind(field(parent, "declarator")) == "bool"
    )


def _is_offset(tree: KernelTree, side: Node) -> bool:
    """Whether an integer is a position read from memory, or a difference of such."""
    source = resolve(tree, side)
    parts = binary(tree, source, "-", "+") or (source,)
    return any(resolve(tree, part).type == "subscript_expression" for part in parts)


def _is_extent(tree: KernelTree, side: Node, sizes: set[str]) -> bool:
    return tree.text(strip(side)) in sizes


def _is_position(tree: KernelTree, side: Node) -> bool:
    """Whether an expression involves a coordinate: a loop variable, or an unravelled index."""
    for identifier in tree.nodes("identifier", within=side):
        name, function = tree.text(identifier), tree.function(identifier)
        value = definition(tree, identifier)
        if value is not None and (
            binary(tree, value, "%", "/") or names_in(tree, value) & {"blockIdx", "threadIdx"}
        ):
            return True
        for loop in tree.nodes("for_statement", within=function):
            initial = loop.child_by_field_name("initializer")
            inside = loop.start_byte <= identifier.start_byte < loop.end_byte
            if inside and initial is not None and _declares(tree, initial, name):
                return True
    return False


def _declares(tree: KernelTree, initial: Node, name: str) -> bool:
    return any(
        tree.text(field(d, "declarator")) == name
        for d in tree.nodes("init_declarator", within=initial)
    )


def _is_value_choice(tree: KernelTree, node: Node) -> bool:
    """Whether a test chooses between float values: a mask, no bound of a tile."""
    if tree.enclosing(node, "subscript_argument_list") is not None:
        return False
    holder = tree.enclosing(node, "if_statement", "conditional_expression", *LOOPS)
    if holder is None:
        return False
    condition = holder.child_by_field_name("condition")
    if condition is None:
        return False
    if holder.type in LOOPS and operator(tree, node) not in ("<=", ">="):
        return False  # `j < size` is a bound; `j <= i` runs up to the diagonal
    return condition.start_byte <= node.start_byte and node.end_byte <= condition.end_byte


def _causal_off_by_one(tree: KernelTree) -> Iterator[Mutation]:
    for node in _masks(tree):
        symbol = field(node, "operator")
        yield mutation(replace(symbol, _FLIPPED[tree.text(symbol)]))


def _causal_drop(tree: KernelTree) -> Iterator[Mutation]:
    for node in _masks(tree):
        holder = _chooser(tree, node)
        if holder is not None and holder.type not in LOOPS:
            yield mutation(replace(node, "false" if _masks_out(tree, holder) else "true"))
    for holder in tree.nodes("conditional_expression"):
        yield from _mask_operand(tree, holder)


def _chooser(tree: KernelTree, node: Node) -> Node | None:
    """The statement or expression that a test chooses in, through a bool variable or not."""
    if not _is_stored_test(tree, node):
        return tree.enclosing(node, "if_statement", "conditional_expression", *LOOPS)
    declarator = tree.enclosing(node, "init_declarator")
    assert declarator is not None
    name = tree.text(field(declarator, "declarator"))
    for holder in tree.nodes("conditional_expression", within=tree.function(node)):
        if tree.text(strip(field(holder, "condition"))) == name:
            return holder
    return None


def _mask_operand(tree: KernelTree, holder: Node) -> Iterator[Mutation]:
    """``mask[...] ? score : -INFINITY``, and additive masks, to the bare score."""
    condition = strip(field(holder, "condition"))
    if condition.type == "unary_expression":
        condition = strip(field(condition, "argument"))
    branches = (field(holder, "consequence"), field(holder, "alternative"))
    hidden = [b for b in branches if re.match(r"-(INFINITY|FLT_MAX|1e\d+)", tree.text(strip(b)))]
    if resolve(tree, condition).type == "subscript_expression" and len(hidden) == 1:
        kept = branches[0] if hidden[0] == branches[1] else branches[1]
        yield mutation(put(tree, holder, tree.text(kept)))


def _masks_out(tree: KernelTree, holder: Node) -> bool:
    """Whether the test is true where the mask hides: -inf, 0, ``continue`` or ``break``."""
    hidden = field(holder, "consequence")
    text = tree.text(hidden)
    if re.search(r"INFINITY|\b(continue|break|return)\b|-1e\d|FLT_MAX", text):
        return True
    value = hidden
    for assigned in tree.nodes("assignment_expression", within=hidden):
        value = field(assigned, "right")
    return number(tree, value) == 0


# -- the rules ----------

_example = partial(example, params=ROWS)


def _softmax(value: str) -> str:
    return (
        "    float sum = 0.0f;\n"
        "    for (int j = 0; j < cols; ++j) sum += expf(x[j]);\n"
        f"    y[threadIdx.x] = {value};"
    )


def _masked(test: str) -> str:
    return (
        "    const int i = blockIdx.x;\n    float sum = 0.0f;\n"
        "    for (int j = 0; j < cols; ++j) {\n"
        f"        sum += {test} ? 0.0f : expf(x[j]);\n    }}\n    y[i] = sum;"
    )


SOFTMAX_DROP_NORMALISE = Rule(
    "softmax-drop-normalise",
    "semantic",
    "the division by the sum of exponentials, or `- logf(sum)`, is removed",
    "the last pass of a softmax forgotten",
    _softmax_drop_normalise,
    (
        _example(_softmax("expf(x[threadIdx.x]) / sum"), _softmax("expf(x[threadIdx.x])")),
        _example(_softmax("x[threadIdx.x] - logf(sum)"), _softmax("x[threadIdx.x]")),
    ),
)
ATTENTION_DROP_SCALE = Rule(
    "attention-drop-scale",
    "semantic",
    "the factor 1/sqrt(d) of attention scores is removed",
    "unscaled dot products fed to the softmax",
    _attention_drop_scale,
    (
        _example(
            "    y[0] = expf(x[0] * rsqrtf((float)cols));",
            "    y[0] = expf(x[0]);",
        ),
        _example("    y[0] = x[0] / sqrtf((float)cols);", "    y[0] = x[0];"),
    ),
)
CAUSAL_OFF_BY_ONE = Rule(
    "causal-off-by-one",
    "semantic",
    "`j > i` to `j >= i` in a mask (and back; the same for `<`)",
    "the diagonal on the wrong side of a causal or triangular mask",
    _causal_off_by_one,
    (
        _example(_masked("j > i"), _masked("j >= i")),
        _example(
            "    const long long t0 = p[0] - q[0];\n    const bool t1 = t0 >= 0;\n"
            "    y[0] = t1 ? x[0] : 0.0f;",
            "    const long long t0 = p[0] - q[0];\n    const bool t1 = t0 > 0;\n"
            "    y[0] = t1 ? x[0] : 0.0f;",
            params="const long long* p, const long long* q, const float* x, float* y",
        ),
    ),
)
CAUSAL_DROP = Rule(
    "causal-drop",
    "semantic",
    "a mask that compares two positions shows everything",
    "the causal or triangular mask forgotten",
    _causal_drop,
    (
        _example(_masked("j > i"), _masked("false")),
        _example(
            "    y[0] = mask[threadIdx.x] ? x[0] : -INFINITY;",
            "    y[0] = x[0];",
            params="const float* x, const bool* mask, float* y",
        ),
    ),
)
