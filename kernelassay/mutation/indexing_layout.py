"""Indexing rules about flattened coordinates: strides, terms, unravelling."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from tree_sitter import Node

from kernelassay.mutation.examples import example
from kernelassay.mutation.geometry import repeated_starts
from kernelassay.mutation.layout import (
    WINDOW,
    Coordinate,
    coordinates,
    factors,
    index_roots,
    is_geometric,
    sibling,
    sizes,
    terms,
    uncast,
    visible,
)
from kernelassay.mutation.nodes import field, names_in, operator
from kernelassay.mutation.rule import Edit, Find, Mutation, Rule
from kernelassay.mutation.sites import bare, binaries, storage
from kernelassay.mutation.tree import KernelTree, delete, mutation, replace
from kernelassay.mutation.warps import is_warp_split

_CHANNEL = re.compile(r"^(c|(ic|oc|ci|co)0?|ch|chan\w*|channel\w*|in_c|out_c|\w+_channel)$", re.I)
_GROUP = re.compile(r"^(g|grp|group\w*)$", re.I)


def _stride_confusion(tree: KernelTree) -> Iterator[Mutation]:
    for function in (*tree.device_functions, *tree.kernels):
        known = sizes(tree, function)
        for node in binaries(tree, "*", within=function):
            if not tree.is_integer(node) or not tree.is_index(node):
                continue
            for name in ("left", "right"):
                side = field(node, name)
                if any(child.type == "number_literal" for child in node.named_children):
                    continue  # `vectors * 4` counts elements, it strides over none
                if side.type != "identifier" or tree.text(side) not in known:
                    continue
                other = sibling(tree.text(side), visible(tree, node, known))
                if other is not None:
                    yield mutation(replace(side, other))


def transpose_edits(tree: KernelTree, index: Node) -> tuple[Edit, Edit] | None:
    """The edits that make ``r * ld + c`` of an index into ``c * ld + r``.

    Of ``((n * C + c) * H + h) * W + w`` the last two coordinates change places. None when the
    index is no such sum, or is the thread's own number.
    """
    found = terms(tree, index)
    if len(found) < 2:
        return None
    product = factors(tree, found[0])
    if len(product) < 2 or is_geometric(tree, product[-1]):
        return None
    if is_geometric(tree, product[0]) and not _is_runtime(tree, product[-1]):
        return None  # a block's first element: no leading dimension
    row = uncast(product[0])
    inner = terms(tree, row)
    if len(inner) > 1 and len(factors(tree, inner[0])) > 1:
        row = inner[-1]
    start, end = found[1].start_byte, found[-1].end_byte
    column = tree.span(start, end)
    # As a factor a compound column needs parentheses; as a term a row never does.
    single = len(found) == 2 and (found[1].type != "binary_expression" or row.id == inner[-1].id)
    compound = found[1].type == "binary_expression" or len(found) > 2
    inside_sum = row.id == inner[-1].id and len(inner) > 1
    around = tree.parent(row)
    enclosed = around is not None and around.type == "parenthesized_expression"
    first = f"({column})" if compound and not inside_sum and not enclosed else column
    if single and tree.text(row) == column:
        return None
    return replace(row, first), replace((start, end), tree.text(row))


def _is_runtime(tree: KernelTree, node: Node) -> bool:
    """Whether a factor is a variable rather than a literal or a macro."""
    return node.type == "identifier" and tree.declared(node) is not None


def _transposed_access(tree: KernelTree) -> Iterator[Mutation]:
    for root in index_roots(tree):
        edits = transpose_edits(tree, root)
        if edits is not None and tree.enclosing(root, "for_statement", "function_definition"):
            yield mutation(*edits)


def _flattened(tree: KernelTree) -> Iterator[list[Coordinate]]:
    """The coordinates of every flattened global address, and of channel-like variables."""
    repeated = repeated_starts(tree)
    for root in index_roots(tree):
        if _is_shared_address(tree, root) or root.id in repeated:
            continue
        if any(WINDOW.search(name) for name in names_in(tree, root)):
            continue  # where a window starts, not where its tensor lies
        found = [c for c in coordinates(tree, root) if not _is_thread_term(tree, c)]
        # A single product is an address's part only as a pointer's offset.
        if len(found) > 1 or (found and _is_pointer_offset(tree, root)):
            yield found


def _is_shared_address(tree: KernelTree, root: Node) -> bool:
    """Whether an index lies in a subscript of shared memory, or moves a pointer to it."""
    parent = tree.parent(root)
    if parent is not None and parent.type == "subscript_argument_list":
        parent = tree.parent(parent)
    return (
        parent is not None
        and parent.type in ("subscript_expression", "binary_expression")
        and storage(tree, parent) == "shared"
    )


def _is_pointer_offset(tree: KernelTree, root: Node) -> bool:
    parent = tree.parent(root)
    return parent is not None and parent.type == "binary_expression"


def _is_thread_term(tree: KernelTree, coordinate: Coordinate) -> bool:
    """A thread's own offset within its block is no coordinate of the tensor."""
    used = names_in(tree, coordinate.term)
    return bool(used & {"threadIdx", "blockDim", "gridDim"})


def _is_channel(tree: KernelTree, coordinate: Coordinate) -> bool:
    return any(_CHANNEL.match(name) for name in names_in(tree, coordinate.value))


def _is_group(tree: KernelTree, coordinate: Coordinate) -> bool:
    value = coordinate.value
    return value.type == "identifier" and _GROUP.match(tree.text(value)) is not None


def _remove(tree: KernelTree, coordinate: Coordinate) -> Edit:
    """The edit that takes a coordinate out of its sum."""
    sum_, term = coordinate.sum, coordinate.term
    if sum_ is not None and field(sum_, "right").id == term.id:
        return delete((field(sum_, "left").end_byte, sum_.end_byte))
    return replace(coordinate.value, "0")


def _drop_coordinate(choose: Callable[[KernelTree, list[Coordinate]], list[Coordinate]]) -> Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for found in _flattened(tree):
            for coordinate in choose(tree, found):
                yield mutation(_remove(tree, coordinate))

    return find


def _batch(tree: KernelTree, found: list[Coordinate]) -> list[Coordinate]:
    """The outermost coordinate, unless it is a channel or a group."""
    first = found[0]
    outermost = len(factors(tree, first.term)) > 1
    if not outermost or _is_channel(tree, first) or _is_group(tree, first):
        return []
    return [first]


def _channel(tree: KernelTree, found: list[Coordinate]) -> list[Coordinate]:
    """The coordinates named as channels; by position the second of four or more."""
    named = [c for c in found if _is_channel(tree, c) and not _is_group(tree, c)]
    if named or len(found) < 4:
        return named
    root = found[-1].sum
    if root is None or len(list(binaries(tree, "*", within=root))) < len(found) - 1:
        return []  # a sum within one axis, such as a tile's first row plus a row
    return [found[1]] if not _is_group(tree, found[1]) else []


def _group(tree: KernelTree, found: list[Coordinate]) -> list[Coordinate]:
    return [c for c in found if _is_group(tree, c)]


def _unravel_swap(tree: KernelTree) -> Iterator[Mutation]:
    for function in (*tree.device_functions, *tree.kernels):
        split = [
            n
            for n in binaries(tree, "/", "%", within=function)
            if tree.is_integer(n) and tree.is_index(n) and not is_warp_split(tree, n)
        ]
        quotients = [n for n in split if operator(tree, n) == "/"]
        for node in split:
            if operator(tree, node) != "%":
                continue
            partners = [q for q in quotients if _operands(tree, q) == _operands(tree, node)]
            left = field(node, "left")
            if partners:
                near = min(partners, key=lambda q: abs(q.start_byte - node.start_byte))
                if _are_two_subscripts(tree, node, near):
                    continue  # the rewrite of shared-index-transpose
                yield mutation(
                    replace(field(node, "operator"), "/"), replace(field(near, "operator"), "%")
                )
            elif left.type == "binary_expression" and operator(tree, left) == "/":
                yield mutation(
                    replace(field(left, "operator"), "%"), replace(field(node, "operator"), "/")
                )


def _are_two_subscripts(tree: KernelTree, one: Node, two: Node) -> bool:
    """Whether the two are the neighbouring indices of ``p[one][two]``."""
    found = []
    for node in (one, two):
        parent = tree.parent(node)
        if parent is None or parent.type != "subscript_argument_list":
            return False
        found.append(tree.parent(parent))
    first, second = found
    if first is None or second is None:
        return False
    return first.id == _argument_id(second) or second.id == _argument_id(first)


def _argument_id(subscript: Node) -> int:
    return field(subscript, "argument").id


def _operands(tree: KernelTree, node: Node) -> tuple[str, str]:
    left, right = bare(field(node, "left")), bare(field(node, "right"))
    return tree.text(left), tree.text(right)


_example = partial(example, params="const float* x, float* y, int H, int W")
_IMAGE = "const float* x, float* y, int N, int C, int H, int W"
_GROUPED = "const float* x, float* y, int per_group"
_ROWS = "int r = blockIdx.x;\nint c = threadIdx.x;\ny[{}] = x[0];"

RULES: tuple[Rule, ...] = (
    Rule(
        id="stride-confusion",
        family="indexing",
        what="a size used as a stride to another size of the same kernel (H to W)",
        bug="a stride of another axis: right only where the two sizes are equal",
        find=_stride_confusion,
        examples=(
            _example(_ROWS.format("r * W + c"), _ROWS.format("r * H + c")),
            _example(
                "int taps = H * W;\ny[threadIdx.x * taps] = x[0];",
                "int taps = W * W;\ny[threadIdx.x * taps] = x[0];",
                "int taps = H * H;\ny[threadIdx.x * taps] = x[0];",
                "int taps = H * W;\ny[threadIdx.x * H] = x[0];",
            ),
        ),
    ),
    Rule(
        id="transposed-access",
        family="indexing",
        what="`p[r * ld + c]` to `p[c * ld + r]`",
        bug="a matrix read or written transposed",
        find=_transposed_access,
        examples=(
            _example(_ROWS.format("(long long)r * W + c"), _ROWS.format("(long long)c * W + r")),
            _example(
                "int h = threadIdx.y, w = threadIdx.x;\ny[(blockIdx.x * H + h) * W + w] = x[0];",
                "int h = threadIdx.y, w = threadIdx.x;\ny[(blockIdx.x * H + w) * W + h] = x[0];",
            ),
            _example(_ROWS.format("(r + 1) * W + c + 2"), _ROWS.format("(c + 2) * W + r + 1")),
        ),
    ),
    Rule(
        id="drop-batch-offset",
        family="indexing",
        what="the outermost coordinate of a flattened address removed",
        bug="every sample reads or writes the first sample",
        find=_drop_coordinate(_batch),
        examples=(
            _example(
                "int n = blockIdx.x, c = blockIdx.y, i = threadIdx.x;\n"
                "y[((long long)n * C + c) * W + i] = x[0];",
                "int n = blockIdx.x, c = blockIdx.y, i = threadIdx.x;\n"
                "y[((long long)0 * C + c) * W + i] = x[0];",
                params=_IMAGE,
            ),
            _example(
                "const float* row = x + blockIdx.x * W;\ny[blockIdx.x] = row[0];",
                "const float* row = x;\ny[blockIdx.x] = row[0];",
            ),
        ),
    ),
    Rule(
        id="drop-channel-offset",
        family="indexing",
        what="the channel coordinate of a flattened address removed",
        bug="every channel reads or writes the first channel",
        find=_drop_coordinate(_channel),
        examples=(
            _example(
                "int n = blockIdx.x, c = blockIdx.y, i = threadIdx.x;\n"
                "y[(n * C + c) * W + i] = x[c];",
                "int n = blockIdx.x, c = blockIdx.y, i = threadIdx.x;\ny[(n * C) * W + i] = x[c];",
                params=_IMAGE,
            ),
        ),
    ),
    Rule(
        id="drop-group-offset",
        family="indexing",
        what="the group coordinate of a flattened address or channel number removed",
        bug="every group of a grouped operation reads the first group",
        find=_drop_coordinate(_group),
        examples=(
            _example(
                "int group = blockIdx.x, c = threadIdx.x;\n"
                "int ic = group * per_group + c;\ny[ic] = x[ic];",
                "int group = blockIdx.x, c = threadIdx.x;\n"
                "int ic = 0 * per_group + c;\ny[ic] = x[ic];",
                params=_GROUPED,
            ),
        ),
    ),
    Rule(
        id="unravel-div-mod-swap",
        family="indexing",
        what="`i / n` and `i % n` of an unravelled index exchanged; `i / a % b` to `i % a / b`",
        bug="quotient and remainder confused when a flat index is taken apart",
        find=_unravel_swap,
        examples=(
            _example(
                "int i = threadIdx.x;\nint r = i / W;\nint c = i % W;\ny[r] = x[c];",
                "int i = threadIdx.x;\nint r = i % W;\nint c = i / W;\ny[r] = x[c];",
            ),
            _example(
                "int i = threadIdx.x;\ny[i] = x[i / W % H];",
                "int i = threadIdx.x;\ny[i] = x[i % W / H];",
            ),
        ),
    ),
)
