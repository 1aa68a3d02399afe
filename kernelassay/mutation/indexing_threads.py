"""Indexing rules about threads, blocks and warps."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.examples import example
from kernelassay.mutation.geometry import repeats_only
from kernelassay.mutation.layout import factors, uncast
from kernelassay.mutation.nodes import field, names_in, operator
from kernelassay.mutation.rule import Find, Mutation, Rule
from kernelassay.mutation.sites import binaries, number, storage, swap
from kernelassay.mutation.tree import KernelTree, mutation, replace
from kernelassay.mutation.warps import lane_of, warp_of


def _axes(tree: KernelTree, builtin: str, within: Node | None = None) -> Iterator[tuple[Node, str]]:
    """The uses of ``threadIdx.a`` and the like: the whole node and the axis."""
    for node in tree.nodes("field_expression", within=within):
        if tree.text(field(node, "argument")) == builtin:
            yield node, tree.text(field(node, "field"))


def _axis_swap(builtin: str) -> Find:
    other = {"x": ("y", "z"), "y": ("x", "z"), "z": ("y", "x")}

    def find(tree: KernelTree) -> Iterator[Mutation]:
        for function in tree.kernels:
            used = {axis for _, axis in _axes(tree, builtin, function)}
            for node, axis in _axes(tree, builtin, function):
                target = next((a for a in other.get(axis, ()) if a in used), None)
                if target is not None:
                    yield mutation(replace(field(node, "field"), target))

    return find


def _blockdim_to_griddim(tree: KernelTree) -> Iterator[Mutation]:
    for node, _ in _axes(tree, "blockDim"):
        if tree.is_index(node) and not repeats_only(tree, node):
            yield mutation(replace(field(node, "argument"), "gridDim"))


def _initialiser(tree: KernelTree, node: Node) -> Node | None:
    """The initialiser of the variable a node names, else None."""
    if node.type != "identifier":
        return None
    declared = tree.declared(node)
    return declared.value if declared is not None else None


def _block_offset(tree: KernelTree, node: Node) -> list[Node] | None:
    """The factors of ``blockIdx.a * size``, written out or behind a variable, else None."""
    found = factors(tree, uncast(node))
    if len(found) == 2:
        block = [f for f in found if "blockIdx" in names_in(tree, f)]
        size = [f for f in found if "blockDim" in names_in(tree, f) or _is_constant(tree, f)]
        if block and size:
            return found  # a runtime size is an address's coordinate: drop-batch-offset
    value = _initialiser(tree, uncast(node))
    return _block_offset(tree, value) if value is not None else None


def _builtin(tree: KernelTree, node: Node, name: str) -> str | None:
    """The axis of ``name.axis`` under casts, else None."""
    inner = uncast(node)
    if inner.type == "field_expression" and tree.text(field(inner, "argument")) == name:
        return tree.text(field(inner, "field"))
    return None


def _drop_block_offset(tree: KernelTree) -> Iterator[Mutation]:
    for node in binaries(tree, "+"):
        left, right = field(node, "left"), field(node, "right")
        if not tree.is_integer(node) or not tree.is_index(node):
            continue
        if number(tree, right) is None and _block_offset(tree, left):
            yield mutation(replace((node.start_byte, right.start_byte), ""))
        elif number(tree, left) is None and _block_offset(tree, right):
            yield mutation(replace((left.end_byte, node.end_byte), ""))


def _thread_order_swap(tree: KernelTree) -> Iterator[Mutation]:
    """Only where the offset is written out, so that both coordinates stand at the site."""
    for node in binaries(tree, "+"):
        left, right = field(node, "left"), field(node, "right")
        product = factors(tree, uncast(left))
        block = [f for f in product if _builtin(tree, f, "blockIdx")]
        if len(product) != 2 or len(block) != 1 or not tree.is_index(node):
            continue
        axis = _builtin(tree, block[0], "blockIdx")
        size = next(f for f in product if f.id != block[0].id)
        if _builtin(tree, size, "blockDim") != axis and not _is_constant(tree, size):
            continue  # a runtime size is a leading dimension: transposed-access
        if not _is_thread(tree, right, axis) or not _is_exchanged(tree, node):
            continue  # each thread on its own: the same elements, by other threads
        yield mutation(
            replace(uncast(block[0]), tree.text(right)),
            replace(size, f"gridDim.{axis}"),
            replace(right, f"blockIdx.{axis}"),
        )


def _is_exchanged(tree: KernelTree, node: Node) -> bool:
    """Whether what a thread puts into shared memory depends on the coordinate ``node``."""
    function = tree.function(node)
    holder = tree.enclosing(node, "init_declarator", "expression_statement")
    if holder is None or holder.type != "init_declarator":
        return holder is not None and _stores_shared(tree, holder)
    derived = {field(holder, "declarator").start_byte}
    size = 0
    while size != len(derived):
        size = len(derived)
        for other in tree.nodes("init_declarator", within=function):
            value = other.child_by_field_name("value")
            if value is not None and _mentions(tree, value, derived):
                derived.add(field(other, "declarator").start_byte)
    return any(
        _stores_shared(tree, statement) and _mentions(tree, statement, derived)
        for statement in tree.nodes("expression_statement", within=function)
    )


def _mentions(tree: KernelTree, node: Node, variables: set[int]) -> bool:
    """Whether one of the variables, known by where they are declared, occurs in ``node``."""
    found = (tree.declared(name) for name in tree.nodes("identifier", within=node))
    return any(declared is not None and declared.start in variables for declared in found)


def _stores_shared(tree: KernelTree, statement: Node) -> bool:
    return any(
        storage(tree, field(node, "left")) == "shared"
        for node in tree.nodes("assignment_expression", within=statement)
    )


def _is_constant(tree: KernelTree, node: Node) -> bool:
    """A literal or a macro."""
    if node.type == "identifier":
        return tree.declared(node) is None
    return number(tree, node) is not None


def _is_thread(tree: KernelTree, node: Node, axis: str | None) -> bool:
    if _builtin(tree, node, "threadIdx") == axis:
        return True
    value = _initialiser(tree, node)
    return value is not None and _builtin(tree, value, "threadIdx") == axis


def _grid_stride_step(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("assignment_expression"):
        step = field(node, "right")
        if operator(tree, node) != "+=" or not tree.is_integer(field(node, "left")):
            continue
        whole = _initialiser(tree, step) or step
        text = tree.text(whole)
        if "gridDim" in text and "blockDim" in text and not repeats_only(tree, step):
            axis = re.search(r"blockDim\.([xyz])", text)
            yield mutation(replace(step, f"blockDim.{axis.group(1) if axis else 'x'}"))


def _lane_warp_swap(tree: KernelTree) -> Iterator[Mutation]:
    for function in (*tree.device_functions, *tree.kernels):
        split = list(binaries(tree, "&", "%", ">>", "/", within=function))
        warps = [n for n in split if warp_of(tree, n) is not None]
        for node in split:
            thread = lane_of(tree, node)
            partners = [w for w in warps if thread is not None and warp_of(tree, w) == thread]
            if partners:
                nearest = min(partners, key=lambda w: abs(w.start_byte - node.start_byte))
                yield mutation(*swap(tree, node, nearest))


_TWO_AXES = "int i = threadIdx.y * n + threadIdx.x;\ny[i] = x[i];"
_TWO_BLOCKS = "int i = blockIdx.y * n + blockIdx.x;\ny[i] = x[i];"
_GLOBAL = "int i = {};\nif (i < n) y[i] = x[i];"
_WIDE = "long long i = {};\nif (i < n) y[i] = x[i];"
_TILE = (
    "__shared__ float s[32];\nlong long i = {};\ns[threadIdx.x] = x[i];\n__syncthreads();\n"
    "y[i] = s[threadIdx.x ^ 1] * n;"
)
_WARPS = (
    "__shared__ float s[32];\nint lane = {};\nint warp = {};\n"
    "if (lane == 0) s[warp] = x[n];\n__syncthreads();\ny[threadIdx.x] = s[lane];"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="thread-axis-swap",
        family="indexing",
        what="`threadIdx.x` to `threadIdx.y` and back, in kernels that use both",
        bug="the axes of a two-dimensional block confused",
        find=_axis_swap("threadIdx"),
        examples=(
            example(
                _TWO_AXES,
                _TWO_AXES.replace("threadIdx.y", "threadIdx.x"),
                _TWO_AXES.replace("threadIdx.x", "threadIdx.y"),
            ),
            example("y[threadIdx.x] = x[threadIdx.x];"),
        ),
    ),
    Rule(
        id="block-axis-swap",
        family="indexing",
        what="`blockIdx.x` to `blockIdx.y` and back, in kernels that use both",
        bug="the axes of the grid confused, such as row and column tiles",
        find=_axis_swap("blockIdx"),
        examples=(
            example(
                _TWO_BLOCKS,
                _TWO_BLOCKS.replace("blockIdx.y", "blockIdx.x"),
                _TWO_BLOCKS.replace("blockIdx.x", "blockIdx.y"),
            ),
            example(
                "y[blockIdx.z] = x[blockIdx.x];",
                "y[blockIdx.x] = x[blockIdx.x];",
                "y[blockIdx.z] = x[blockIdx.z];",
            ),
        ),
    ),
    Rule(
        id="blockdim-to-griddim",
        family="indexing",
        what="`blockDim.a` to `gridDim.a` in an index",
        bug="the number of threads and the number of blocks confused",
        find=_blockdim_to_griddim,
        examples=(
            example(
                _GLOBAL.format("blockIdx.x * blockDim.x + threadIdx.x"),
                _GLOBAL.format("blockIdx.x * gridDim.x + threadIdx.x"),
            ),
        ),
    ),
    Rule(
        id="drop-block-offset",
        family="indexing",
        what="`blockIdx.x * blockDim.x + threadIdx.x` to `threadIdx.x`",
        bug="every block works on the first block's elements",
        find=_drop_block_offset,
        examples=(
            example(
                _GLOBAL.format("(long long)blockIdx.x * blockDim.x + threadIdx.x"),
                _GLOBAL.format("threadIdx.x"),
            ),
            example(
                "int row0 = blockIdx.y * 16;\ny[row0 + threadIdx.y] = x[0];",
                "int row0 = blockIdx.y * 16;\ny[threadIdx.y] = x[0];",
            ),
        ),
    ),
    Rule(
        id="thread-order-swap",
        family="indexing",
        what="`blockIdx.a * blockDim.a + threadIdx.a` to `threadIdx.a * gridDim.a + blockIdx.a` "
        "where the block's threads share what they read there",
        bug="the interleaving of blocks and threads reversed",
        find=_thread_order_swap,
        examples=(
            example(
                _TILE.format("(long long)blockIdx.x * blockDim.x + threadIdx.x"),
                _TILE.format("(long long)threadIdx.x * gridDim.x + blockIdx.x"),
            ),
            example(
                "int tx = threadIdx.x;\n" + _TILE.format("blockIdx.x * 16 + tx"),
                "int tx = threadIdx.x;\n" + _TILE.format("tx * gridDim.x + blockIdx.x"),
            ),
            example(_WIDE.format("(long long)blockIdx.x * blockDim.x + threadIdx.x")),
        ),
    ),
    Rule(
        id="grid-stride-step",
        family="indexing",
        what="a grid-stride loop's step `blockDim.x * gridDim.x` to `blockDim.x`, where a second "
        "visit of an element counts",
        bug="a grid-stride loop that advances by one block only",
        find=_grid_stride_step,
        examples=(
            example(
                "float v = 0.0f;\nfor (int i = 0; i < n; i += blockDim.x * gridDim.x) v += x[i];",
                "float v = 0.0f;\nfor (int i = 0; i < n; i += blockDim.x) v += x[i];",
            ),
            example(
                "int s = gridDim.x * blockDim.x;\nfor (int i = 0; i < n; i += s) y[i] += x[i];",
                "int s = gridDim.x * blockDim.x;\n"
                "for (int i = 0; i < n; i += blockDim.x) y[i] += x[i];",
            ),
            example("for (int i = 0; i < n; i += blockDim.x * gridDim.x) y[i] = x[i];"),
        ),
    ),
    Rule(
        id="lane-warp-swap",
        family="indexing",
        what="`t & 31` and `t >> 5` exchanged (also `%` and `/` by the warp size)",
        bug="a thread's lane and its warp confused",
        find=_lane_warp_swap,
        examples=(
            example(
                _WARPS.format("threadIdx.x & 31", "threadIdx.x >> 5"),
                _WARPS.format("threadIdx.x >> 5", "threadIdx.x & 31"),
            ),
            example(
                _WARPS.format("threadIdx.x % WARP", "threadIdx.x / WARP"),
                _WARPS.format("threadIdx.x / WARP", "threadIdx.x % WARP"),
                head="#define WARP 32",
            ),
        ),
    ),
)
