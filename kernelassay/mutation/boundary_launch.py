"""Boundary rules on the launch geometry: they touch the host function ``launch`` only.

A grid or block may be an expression, ``dim3(...)``, or a variable. An edit of one launch leaves
the variable's other uses alone: the launch gets the changed extents in place of the variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from tree_sitter import Node

from kernelassay.mutation.examples import kernel
from kernelassay.mutation.extents import bare, compact, floor_of_ceil, literal, scaled, shifted
from kernelassay.mutation.geometry import (
    any_block,
    any_grid,
    kernel_named,
    shuffles,
    stops_extra_block,
)
from kernelassay.mutation.nodes import arguments, callee, field, operator
from kernelassay.mutation.rule import Edit, Example, Mutation, Rule
from kernelassay.mutation.tree import KernelTree, mutation, replace

_MOST_THREADS = 1024  # a larger block is no launch at all (CUDA C++ Programming Guide, table 30)


@dataclass(frozen=True, slots=True)
class Geometry:
    """A grid or a block of one launch.

    ``node`` is the expression at the launch, ``parts`` the one to three extents, as nodes,
    ``kernel`` the kernel launched.
    """

    node: Node
    parts: tuple[Node, ...]
    kernel: Node | None = None

    def with_parts(self, tree: KernelTree, texts: list[str]) -> Edit:
        """The edit that launches with other extents."""
        if len(self.parts) == 1 and self.parts[0].id == self.node.id:
            return replace(self.node, texts[0])
        return replace(self.node, f"dim3({', '.join(texts)})")

    def with_part(self, tree: KernelTree, axis: int, text: str) -> Edit:
        """The edit that changes the extent of one axis."""
        texts = [tree.text(part) for part in self.parts]
        texts[axis] = text
        return self.with_parts(tree, texts)


def _declarator(tree: KernelTree, name: str) -> Node | None:
    """The declarator of a local of ``launch``, else None."""
    for declaration in tree.launch_nodes("declaration"):
        for declarator in declaration.children_by_field_name("declarator"):
            inner = declarator.child_by_field_name("declarator")
            if inner is not None and tree.text(inner) == name:
                return declarator
    return None


def _assigned(tree: KernelTree, name: str) -> list[Node]:
    """The values that are assigned to a local of ``launch``, or to a member of it."""
    found = []
    for node in tree.launch_nodes("assignment_expression", "update_expression"):
        target = node.child_by_field_name("left") or field(node, "argument")
        if name in {tree.text(n) for n in tree.nodes("identifier", within=target)}:
            found.append(node.child_by_field_name("right") or node)
    return found


def _declared(tree: KernelTree, name: str) -> Node | None:
    """The declarator of a local of ``launch`` that is never assigned again, else None."""
    return None if _assigned(tree, name) else _declarator(tree, name)


def _parts(tree: KernelTree, node: Node) -> tuple[Node, ...]:
    """The extents that an expression of a launch stands for."""
    if node.type == "call_expression" and callee(tree, node) == "dim3":
        return tuple(arguments(node))
    if node.type != "identifier":
        return (node,)
    declarator = _declared(tree, tree.text(node))
    if declarator is None:
        return (node,)
    if declarator.type == "function_declarator":
        # The grammar takes `dim3 grid(blocks)` for a function that has a parameter.
        return tuple(field(declarator, "parameters").named_children)
    value = declarator.child_by_field_name("value")
    if value is None:
        return (node,)
    if value.type in ("argument_list", "initializer_list"):
        return tuple(value.named_children)
    if value.type == "call_expression" and callee(tree, value) == "dim3":
        return tuple(arguments(value))
    return (node,)


def _grids(tree: KernelTree) -> Iterator[Geometry]:
    for site in tree.launches():
        kernel_ = kernel_named(tree, site.kernel)
        yield Geometry(site.grid, _parts(tree, site.grid), kernel_)


def _blocks(tree: KernelTree) -> Iterator[Geometry]:
    for site in tree.launches():
        kernel_ = kernel_named(tree, site.kernel)
        yield Geometry(site.block, _parts(tree, site.block), kernel_)


def _value(tree: KernelTree, node: Node) -> int | None:
    """The constant that an extent is: a literal, or a variable set to one."""
    if node.type == "identifier" and (declarator := _declared(tree, tree.text(node))) is not None:
        value = declarator.child_by_field_name("value")
        return literal(tree, bare(value)) if value is not None else None
    return literal(tree, bare(node))


# -- grids --------------------------------------------------------------------------------------


def _feeds_grid(tree: KernelTree) -> list[Node]:
    """The grid expressions and the initialisers of the variables in them, in source order."""
    found: dict[int, Node] = {}
    pending = [site.grid for site in tree.launches()]
    while pending:
        node = pending.pop()
        if node.id in found:
            continue
        found[node.id] = node
        for name in tree.nodes("identifier", "type_identifier", within=node):
            pending += _assigned(tree, tree.text(name))
            declarator = _declarator(tree, tree.text(name))
            if declarator is not None:
                field = "parameters" if declarator.type == "function_declarator" else "value"
                value = declarator.child_by_field_name(field)
                pending += [value] if value is not None else []
    return sorted(found.values(), key=lambda node: node.start_byte)


def _ceil_to_floor(tree: KernelTree) -> Iterator[Mutation]:
    seen: set[int] = set()
    for source in _feeds_grid(tree):
        for node in tree.nodes("binary_expression", "call_expression", within=source):
            floor = floor_of_ceil(tree, node)
            if floor is not None and node.id not in seen:
                seen.add(node.id)
                yield mutation(replace(node, floor))


_Harmless = Callable[[KernelTree, Node, str], bool]


def _grid_by(tree: KernelTree, by: int, harmless: _Harmless) -> Iterator[Mutation]:
    for grid in _grids(tree):
        for axis, part in enumerate(grid.parts):
            # A grid of one block has no last block to lose; a second one only repeats it.
            if _value(tree, part) == 1:
                continue
            if grid.kernel is None or not harmless(tree, grid.kernel, "xyz"[axis]):
                yield mutation(grid.with_part(tree, axis, shifted(tree, part, by)))


def _grid_minus_one(tree: KernelTree) -> Iterator[Mutation]:
    return _grid_by(tree, -1, any_grid)


def _grid_plus_one(tree: KernelTree) -> Iterator[Mutation]:
    return _grid_by(tree, 1, stops_extra_block)


def _grid_axis_swap(tree: KernelTree) -> Iterator[Mutation]:
    for grid in _grids(tree):
        texts = [tree.text(part) for part in grid.parts]
        if len(texts) > 1 and compact(texts[0]) != compact(texts[1]):
            texts[0], texts[1] = texts[1], texts[0]
            yield mutation(grid.with_parts(tree, texts))


# -- blocks and shared memory -------------------------------------------------------------------


def _block_halved(tree: KernelTree) -> Iterator[Mutation]:
    for block in _blocks(tree):
        for axis, part in enumerate(block.parts):
            if _value(tree, part) != 1 and not _is_free(tree, block, axis):
                yield mutation(block.with_part(tree, axis, scaled(tree, part, down=2)))


def _is_free(tree: KernelTree, block: Geometry, axis: int, *, larger: bool = False) -> bool:
    """Whether the kernel takes blocks of any size along an axis."""
    return block.kernel is not None and any_block(tree, block.kernel, "xyz"[axis], larger=larger)


def _block_doubled(tree: KernelTree) -> Iterator[Mutation]:
    for block in _blocks(tree):
        values = [_value(tree, part) for part in block.parts]
        if None not in values and 2 * prod(v for v in values if v is not None) > _MOST_THREADS:
            continue
        for axis, part in enumerate(block.parts):
            if values[axis] != 1 and not _is_free(tree, block, axis, larger=True):
                yield mutation(block.with_part(tree, axis, scaled(tree, part, up=2)))


def _block_not_warp_multiple(tree: KernelTree) -> Iterator[Mutation]:
    for block in _blocks(tree):
        for axis, part in enumerate(block.parts):
            if _value(tree, part) != 1:
                if not _is_free(tree, block, axis) or shuffles(tree, block.kernel or part):
                    yield mutation(block.with_part(tree, axis, shifted(tree, part, -1)))
                break


def _shared_bytes_halved(tree: KernelTree) -> Iterator[Mutation]:
    for site in tree.launches():
        shared = site.shared
        if shared is not None and literal(tree, shared) != 0:
            yield mutation(replace(shared, _half(tree, shared)))


def _half(tree: KernelTree, node: Node) -> str:
    """Half of a number of bytes; a literal count in front of ``* sizeof`` is halved itself."""
    if node.type == "binary_expression" and operator(tree, node) == "*":
        left = field(node, "left")
        if literal(tree, left) is not None:
            return f"{scaled(tree, left, down=2)} * {tree.text(field(node, 'right'))}"
    return scaled(tree, node, down=2)


# -- the rules ----------------------------------------------------------------------------------

_PLANE = "const float* x, float* y, int rows, int cols"


def _launch(grid: str, *, block: str = "32", shared: str = "") -> str:
    body = "y[blockIdx.x] = x[threadIdx.x];"
    return kernel(body, _PLANE, grid=grid, block=block, shared=shared)


def _with_variables(grid: str, block: str = "block") -> str:
    text = _launch(grid, block=block)
    declarations = "    dim3 block(32, 8);\n    dim3 grid(cols, (rows + 7) / 8);\n"
    return text.replace("int cols) {\n    k<<<", "int cols) {\n" + declarations + "    k<<<")


LAUNCH_RULES = (
    Rule(
        "grid-ceil-to-floor",
        "boundary",
        "`(n + B - 1) / B` to `n / B` in a grid",
        "the last, partial block is never launched",
        _ceil_to_floor,
        (
            Example(_launch("(rows + 31) / 32"), (_launch("rows / 32"),)),
            Example(
                _launch("dim3((cols + 16 - 1) / 16, rows)"), (_launch("dim3(cols / 16, rows)"),)
            ),
        ),
    ),
    Rule(
        "grid-minus-one",
        "boundary",
        "one axis of a launch's grid one block shorter",
        "the last block is never launched",
        _grid_minus_one,
        (
            Example(_launch("rows"), (_launch("rows - 1"),)),
            Example(
                _with_variables("grid"),
                (
                    _with_variables("dim3(cols - 1, (rows + 7) / 8)"),
                    _with_variables("dim3(cols, (rows + 7) / 8 - 1)"),
                ),
            ),
        ),
    ),
    Rule(
        "grid-plus-one",
        "boundary",
        "one axis of a launch's grid one block longer",
        "a block too many, harmless only where every access is guarded",
        _grid_plus_one,
        (Example(_launch("dim3(rows, 1)"), (_launch("dim3(rows + 1, 1)"),)),),
    ),
    Rule(
        "grid-axis-swap",
        "boundary",
        "grid.x and grid.y exchanged",
        "rows and columns mixed up at the launch: unnoticed on square shapes",
        _grid_axis_swap,
        (Example(_launch("dim3(rows, cols)"), (_launch("dim3(cols, rows)"),)),),
    ),
    Rule(
        "block-halved",
        "boundary",
        "one axis of a launch's block halved, the grid unchanged",
        "a block size changed at the launch and not in the kernel or the grid",
        _block_halved,
        (
            Example(_launch("rows", block="256"), (_launch("rows", block="128"),)),
            Example(
                _with_variables("grid"),
                (
                    _with_variables("grid", "dim3(16, 8)"),
                    _with_variables("grid", "dim3(32, 4)"),
                ),
            ),
        ),
    ),
    Rule(
        "block-doubled",
        "boundary",
        "one axis of a launch's block doubled, the grid unchanged",
        "a block size changed at the launch and not in the kernel or the grid",
        _block_doubled,
        (Example(_launch("rows", block="dim3(256)"), (_launch("rows", block="dim3(512)"),)),),
    ),
    Rule(
        "block-not-warp-multiple",
        "boundary",
        "the launch's block one thread narrower",
        "a block that is no multiple of 32 threads meets warp-level code",
        _block_not_warp_multiple,
        (Example(_launch("rows", block="256"), (_launch("rows", block="255"),)),),
    ),
    Rule(
        "shared-bytes-halved",
        "boundary",
        "the dynamic shared memory of a launch halved",
        "a shared buffer sized for fewer threads or for a narrower type",
        _shared_bytes_halved,
        (
            Example(
                _launch("rows", shared="32 * sizeof(float)"),
                (_launch("rows", shared="16 * sizeof(float)"),),
            ),
            Example(
                _launch("rows", shared="cols * sizeof(float)"),
                (_launch("rows", shared="(cols * sizeof(float)) / 2"),),
            ),
        ),
    ),
)
