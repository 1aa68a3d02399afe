"""Indexing rules about convolution windows and reduction axes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.examples import example
from kernelassay.mutation.indexing_layout import transpose_edits
from kernelassay.mutation.layout import (
    WINDOW,
    factors,
    index_roots,
    loop_variable,
    sibling,
    sizes,
    uncast,
)
from kernelassay.mutation.nodes import field, names_in, operator
from kernelassay.mutation.rule import Edit, Find, Mutation, Rule
from kernelassay.mutation.sites import binaries, change_operator, is_store_target, storage
from kernelassay.mutation.tree import KernelTree, delete, mutation, replace

_PADDING = re.compile(r"(^|_)pad", re.I)
_STRIDE = re.compile(r"(^|_)stride", re.I)
_DILATION = re.compile(r"(^|_)dil", re.I)
_TAPS = re.compile(r"(^|_)(kernel|taps?|filter|window|ksize)", re.I)


def _mentions(tree: KernelTree, node: Node, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(name) for name in names_in(tree, node))


def _padding_terms(tree: KernelTree) -> Iterator[Node]:
    """The ``a - pad`` and ``a + pad`` of input coordinates."""
    for node in binaries(tree, "+", "-"):
        right = field(node, "right")
        if right.type == "identifier" and _PADDING.search(tree.text(right)) and tree.is_index(node):
            yield node


def _padding_sign(tree: KernelTree) -> Iterator[Mutation]:
    for node in _padding_terms(tree):
        yield mutation(*change_operator(tree, node, "-" if operator(tree, node) == "+" else "+"))


def _drop_padding(tree: KernelTree) -> Iterator[Mutation]:
    for node in _padding_terms(tree):
        yield mutation(delete((field(node, "left").end_byte, node.end_byte)))


def _drop_factor(pattern: re.Pattern[str]) -> Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for node in binaries(tree, "*", "/"):
            if not tree.is_integer(node) or not tree.is_index(node):
                continue
            left, right = field(node, "left"), field(node, "right")
            if right.type == "identifier" and pattern.search(tree.text(right)):
                yield mutation(delete((left.end_byte, node.end_byte)))
            elif (
                operator(tree, node) == "*"
                and left.type == "identifier"
                and pattern.search(tree.text(left))
            ):
                yield mutation(delete((node.start_byte, right.start_byte)))

    return find


def _tap_flip(tree: KernelTree) -> Iterator[Mutation]:
    for loop in tree.nodes("for_statement"):
        found = loop_variable(tree, loop)
        if found is None:
            continue
        name, bound = found
        body = field(loop, "body")
        if not _counts_from_zero(tree, loop) or not _walks_a_window(tree, body, name):
            continue
        flipped = f"{tree.text(bound)} - 1 - {name}"
        for node in tree.nodes("subscript_expression", within=body):
            index = field(node, "indices").named_children[0]
            if _mentions(tree, index, WINDOW) or is_store_target(tree, node):
                continue  # the input's coordinate, not the tap's
            uses = [
                inner
                for inner in tree.nodes("identifier", within=index)
                if tree.text(inner) == name
                and tree.enclosing(inner, "subscript_expression") == node
            ]
            if uses:
                yield mutation(*(replace(inner, f"({flipped})") for inner in uses))


def _counts_from_zero(tree: KernelTree, loop: Node) -> bool:
    start = loop.child_by_field_name("initializer")
    values = list(tree.nodes("init_declarator", within=start)) if start is not None else []
    return len(values) == 1 and tree.text(field(values[0], "value")) == "0"


def _walks_a_window(tree: KernelTree, body: Node, name: str) -> bool:
    """Whether an input coordinate is computed from the loop variable, a stride or a padding."""
    for root in index_roots(tree):
        inside = body.start_byte <= root.start_byte and root.end_byte <= body.end_byte
        if inside and name in names_in(tree, root) and _mentions(tree, root, WINDOW):
            return True
    return _walks_from_an_origin(tree, body, name)


def _walks_from_an_origin(tree: KernelTree, body: Node, name: str) -> bool:
    """The same, where ``start = x * stride - padding`` was computed before the loop."""
    for node in tree.nodes("init_declarator", within=body):
        value = node.child_by_field_name("value")
        if value is None or name not in names_in(tree, value) or not tree.is_index(value):
            continue
        for inner in tree.nodes("identifier", within=value):
            declared = tree.declared(inner)
            origin = declared.value if declared is not None else None
            if origin is not None and _mentions(tree, origin, _PADDING):
                return True
    return False


def _reduce_wrong_axis(tree: KernelTree) -> Iterator[Mutation]:
    for loop in tree.nodes("for_statement"):
        found = loop_variable(tree, loop)
        if found is None:
            continue
        name, bound = found
        known = sizes(tree, tree.function(loop))
        if bound.type != "identifier" or tree.text(bound) not in known:
            continue
        if _TAPS.search(tree.text(bound)):
            continue  # a window is no axis
        edits: list[Edit] = []
        leading = ""
        for node in _reduced(tree, field(loop, "body"), name):
            exchanged = _other_axis(tree, node, name)
            if exchanged is not None:
                edits.extend(exchanged[0])
                leading = leading or exchanged[1]
        if not edits:
            continue
        other = leading if leading in known and leading != tree.text(bound) else None
        other = other or sibling(tree.text(bound), known)
        if other is not None:
            yield mutation(replace(bound, other), *edits)


def _reduced(tree: KernelTree, body: Node, name: str) -> Iterator[Node]:
    """The global reads by ``name`` whose value is accumulated in the loop's own body."""
    for node in tree.nodes("subscript_expression", within=body):
        index = field(node, "indices").named_children[0]
        if name not in names_in(tree, index) or is_store_target(tree, node):
            continue
        update = tree.enclosing(node, "assignment_expression", "expression_statement")
        if update is None or update.type != "assignment_expression":
            continue
        target = tree.text(field(update, "left"))
        again = target in {
            tree.text(n) for n in tree.nodes(within=field(update, "right")) if n.is_named
        }
        if (operator(tree, update) != "=" or again) and storage(tree, node) == "global":
            yield node


def _other_axis(tree: KernelTree, node: Node, name: str) -> tuple[tuple[Edit, ...], str] | None:
    """The edits that walk another axis, and the leading dimension involved."""
    index = field(node, "indices").named_children[0]
    edits = transpose_edits(tree, index)
    if edits is not None:
        if not any(re.search(rf"\b{name}\b", edit.text) for edit in edits):
            return None  # the loop walks an outer axis
        return edits, tree.text(_leading(tree, index))
    row = field(node, "argument")
    declared = tree.declared(row) if row.type == "identifier" else None
    offset = declared.value if declared is not None else None
    if tree.text(index) != name or offset is None or offset.type != "binary_expression":
        return None
    base, place = field(offset, "left"), field(offset, "right")
    product = factors(tree, uncast(place))
    if operator(tree, offset) != "+" or len(product) != 2 or uncast(place).id != place.id:
        return None
    start, leading = tree.text(product[0]), tree.text(product[1])
    text = f"{tree.text(base)}[{name} * {leading} + {start}]"
    return (replace(node, text),), leading


def _leading(tree: KernelTree, index: Node) -> Node:
    product = next(
        n for n in tree.nodes("binary_expression", within=index) if operator(tree, n) == "*"
    )
    return factors(tree, product)[-1]


_CONV = "const float* x, const float* w, float* y, int K, int stride, int pad, int dilation, int L"
_WINDOW_BODY = (
    "int o = threadIdx.x;\nfloat acc = 0.0f;\nfor (int k = 0; k < K; ++k) {{\n"
    "    int i = {};\n    if (i >= 0 && i < L) acc += x[i] * w[{}];\n}}\ny[o] = acc;"
)
_COORDINATE = "o * stride - pad + k * dilation"


def _window(coordinate: str, tap: str = "k") -> str:
    return _WINDOW_BODY.format(coordinate, tap)


_MATRIX = "const float* x, float* y, int rows, int cols"

RULES: tuple[Rule, ...] = (
    Rule(
        id="kernel-tap-flip",
        family="indexing",
        what="a convolution tap k of the weight to K - 1 - k",
        bug="convolution and correlation confused: the kernel mirrored",
        find=_tap_flip,
        examples=(
            example(_window(_COORDINATE), _window(_COORDINATE, "(K - 1 - k)"), params=_CONV),
            example(
                "float acc = 0.0f;\nfor (int k = 0; k < cols; ++k) acc += x[k];\ny[0] = acc;",
                params=_MATRIX,
            ),
        ),
    ),
    Rule(
        id="padding-sign",
        family="indexing",
        what="`o * stride - pad` to `o * stride + pad`, and back",
        bug="the padding applied on the wrong side",
        find=_padding_sign,
        examples=(
            example(_window(_COORDINATE), _window("o * stride + pad + k * dilation"), params=_CONV),
        ),
    ),
    Rule(
        id="drop-padding",
        family="indexing",
        what="`o * stride - pad` to `o * stride`",
        bug="the padding ignored",
        find=_drop_padding,
        examples=(
            example(_window(_COORDINATE), _window("o * stride + k * dilation"), params=_CONV),
        ),
    ),
    Rule(
        id="drop-stride",
        family="indexing",
        what="the stride removed from an input coordinate",
        bug="the stride ignored: right only for stride one",
        find=_drop_factor(_STRIDE),
        examples=(example(_window(_COORDINATE), _window("o - pad + k * dilation"), params=_CONV),),
    ),
    Rule(
        id="drop-dilation",
        family="indexing",
        what="the dilation removed from an input coordinate",
        bug="the dilation ignored: right only for dilation one",
        find=_drop_factor(_DILATION),
        examples=(example(_window(_COORDINATE), _window("o * stride - pad + k"), params=_CONV),),
    ),
    Rule(
        id="reduce-wrong-axis",
        family="indexing",
        what="a reduction's bound and stride exchanged with those of another axis",
        bug="a reduction along the wrong dimension: right in shape for square inputs only",
        find=_reduce_wrong_axis,
        examples=(
            example(
                "int r = blockIdx.x;\nfloat s = 0.0f;\n"
                "for (int k = 0; k < cols; ++k) s += x[r * cols + k];\ny[r] = s;",
                "int r = blockIdx.x;\nfloat s = 0.0f;\n"
                "for (int k = 0; k < rows; ++k) s += x[k * cols + r];\ny[r] = s;",
                params=_MATRIX,
            ),
            example(
                "const float* row = x + (long long)blockIdx.x * cols;\nfloat m = row[0];\n"
                "for (int k = threadIdx.x; k < cols; k += 32) m = fmaxf(m, row[k]);\ny[0] = m;",
                "const float* row = x + (long long)blockIdx.x * cols;\nfloat m = row[0];\n"
                "for (int k = threadIdx.x; k < rows; k += 32) "
                "m = fmaxf(m, x[k * cols + (long long)blockIdx.x]);\ny[0] = m;",
                params=_MATRIX,
            ),
        ),
    ),
)
