"""Benign rewrites of the launch: other block sizes, a grid-stride loop."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.examples import kernel
from kernelassay.mutation.match import binary, call, declared_name, is_assigned, strip
from kernelassay.mutation.nodes import field
from kernelassay.mutation.rule import Edit, Example, Find, Mutation, Rule
from kernelassay.mutation.tree import KernelTree, insert, mutation, replace

# -- launch geometry ----------


def _block_size(size: int) -> Find:
    """Another block size where the kernel works for any: index, guard, no shared memory."""

    def find(tree: KernelTree) -> Iterator[Mutation]:
        literals = [_literal_size(tree, site.block) for site in tree.launches()]
        for site, literal in zip(tree.launches(), literals, strict=True):
            kernels = [k for k in tree.kernels if tree.name(k) == site.kernel]
            if len(kernels) != 1 or site.shared is not None or literal is None:
                continue
            shared = sum(other is not None and other.id == literal.id for other in literals)
            if shared == 1 and _any_block_size(tree, kernels[0]):
                edits = _resized(tree, site.grid, literal, str(size))
                if edits:
                    yield mutation(*edits)

    return find


def _any_block_size(tree: KernelTree, function: Node) -> bool:
    """Whether threads are told apart by the global index only, and none works with another."""
    text = tree.text(function)
    whole = re.sub(r"\s+", "", text)
    index = "blockIdx.x*blockDim.x+threadIdx.x"
    if index not in whole:
        return False
    rest = whole.replace(index, "")
    steps = rest.replace("gridDim.x*blockDim.x", "").replace("blockDim.x*gridDim.x", "")
    if re.search(
        r"threadIdx|blockIdx|blockDim|gridDim|__shared__|__sync|__shfl|atomic|launch_bounds", steps
    ):
        return False
    helpers = [f for f in tree.device_functions if f"{tree.name(f)}(" in whole]
    return not any(
        re.search(r"threadIdx|blockIdx|__shared__|__sync|__shfl", tree.text(f)) for f in helpers
    )


def _resized(tree: KernelTree, grid: Node, old: Node, size: str) -> tuple[Edit, ...]:
    """The edits of a one-dimensional launch ``(n + B - 1) / B`` blocks of literal size B."""
    if tree.text(old) == size:
        return ()
    current = tree.text(old)
    places = [n for n in _reachable(tree, grid) if n.type == "number_literal"]
    whole, less = current, str(int(current) - 1)
    used = [n for n in places if tree.text(n) in (whole, less)]
    if {tree.text(n) for n in used} == {whole, less}:
        edits = {n.id: _sized(tree, n, whole, size) for n in used}
    elif old.id in {n.id for n in places}:
        edits = {}  # the grid is computed from the same variable
    else:
        return ()
    edits[old.id] = replace(old, size)
    return tuple(edits.values())


def _sized(tree: KernelTree, node: Node, whole: str, size: str) -> Edit:
    return replace(node, size if tree.text(node) == whole else str(int(size) - 1))


def _literal_size(tree: KernelTree, block: Node) -> Node | None:
    """The literal behind a block size: ``256``, ``dim3(256)``, or a variable set to one."""
    node: Node = strip(block)
    for _ in range(4):
        given = call(tree, node, "dim3")
        if given is not None:
            if len(given) != 1:
                return None
            node = strip(given[0])
        if node.type == "number_literal":
            return node
        if node.type != "identifier":
            return None
        value = _launcher_value(tree, node)
        if value is None:
            return None
        node = value.named_children[0] if value.type == "argument_list" else strip(value)
    return None


def _launcher_value(tree: KernelTree, identifier: Node) -> Node | None:
    name = tree.text(identifier)
    found = [
        field(d, "value")
        for d in tree.launch_nodes("init_declarator")
        if declared_name(tree, d) == name
    ]
    changed = any(
        tree.text(field(n, "left")) == name for n in tree.launch_nodes("assignment_expression")
    )
    if len(found) != 1 or changed:
        return None
    if found[0].type == "argument_list" and len(found[0].named_children) != 1:
        return None
    return found[0]


def _reachable(tree: KernelTree, node: Node, depth: int = 4) -> Iterator[Node]:
    """The nodes of an expression and of what its launcher variables are set to."""
    for inner in tree.nodes(within=node):
        yield inner
        if inner.type == "identifier" and depth:
            for declarator in tree.launch_nodes("init_declarator"):
                if declared_name(tree, declarator) == tree.text(inner):
                    yield from _reachable(tree, field(declarator, "value"), depth - 1)


def _grid_stride(tree: KernelTree) -> Iterator[Mutation]:
    """One thread per element to a loop over half the blocks."""
    for site in tree.launches():
        kernels = [k for k in tree.kernels if tree.name(k) == site.kernel]
        grid = _one_dimensional(tree, site.grid)
        if len(kernels) != 1 or grid is None or len(tree.launches()) != 1:
            continue
        body = field(kernels[0], "body")
        parts = [n for n in body.named_children if n.type != "comment"]
        header = _guarded_index(tree, parts)
        if header is None or re.search(r"\breturn\b|__sync|__shfl|__shared__", header[1]):
            continue
        loop = Edit(parts[0].start_byte, parts[1].end_byte, header[0])
        end = insert(body.end_byte - 1, "}\n")
        half = replace(grid, f"({tree.text(grid)} + 1) / 2")
        yield mutation(loop, end, half)


def _guarded_index(tree: KernelTree, parts: list[Node]) -> tuple[str, str] | None:
    """The loop header for ``T i = ...; if (i >= n) return;`` and the text of what follows."""
    if len(parts) < 3 or parts[0].type != "declaration" or parts[1].type != "if_statement":
        return None
    declarator = parts[0].child_by_field_name("declarator")
    sides = binary(tree, field(parts[1], "condition"), ">=")
    if declarator is None or declarator.type != "init_declarator" or not sides:
        return None
    name, start = declared_name(tree, declarator), tree.text(field(declarator, "value"))
    if tree.text(sides[0]) != name or "return" not in tree.text(field(parts[1], "consequence")):
        return None
    # The whole value: where a thread starts at a multiple of its number, the step is another.
    index = ("blockIdx.x*blockDim.x+threadIdx.x", "threadIdx.x+blockIdx.x*blockDim.x")
    rest = tree.span(parts[2].start_byte, parts[-1].end_byte)
    plain = re.sub(r"\s+|\((longlong|int|size_t|unsigned)\)", "", start) in index
    if not plain or is_assigned(tree, tree.function(parts[0]), name):
        return None
    kind = tree.text(field(parts[0], "type"))
    step = f"({kind})gridDim.x * blockDim.x"
    condition = f"{name} < {tree.text(sides[1])}"
    return f"for ({kind} {name} = {start}; {condition}; {name} += {step}) {{", rest


def _one_dimensional(tree: KernelTree, grid: Node) -> Node | None:
    """The only extent of a grid: an integer expression, ``dim3(e)``, or a variable set to one."""
    node = strip(grid)
    given = call(tree, node, "dim3")
    if given is not None:
        return given[0] if len(given) == 1 else None
    if node.type == "identifier":
        value = _launcher_value(tree, node)
        if value is None or value.type != "argument_list":
            return None
        return value.named_children[0]
    return node if node.type != "call_expression" else None


# -- the rules ----------


def _elementwise(grid: str, block: str) -> str:
    body = (
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i >= n) return;\n    y[i] = x[i];"
    )
    return kernel(body, grid=grid, block=block)


def _strided(grid: str) -> str:
    body = (
        "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; "
        "i += (int)gridDim.x * blockDim.x) {\n    y[i] = x[i];\n}"
    )
    return kernel(body, grid=grid, block="256")


def benign_rule(id_: str, what: str, find: Find, *examples: Example) -> Rule:
    """A benign rewrite."""
    return Rule(id_, "benign", what, "no bug: another correct kernel", find, examples)


def _block_rule(size: int) -> Rule:
    return benign_rule(
        f"block-size-{size}",
        f"blocks of {size} threads where a kernel works for any block size",
        _block_size(size),
        Example(
            _elementwise("(n + 255) / 256", "256"),
            (_elementwise(f"(n + {size - 1}) / {size}", f"{size}"),),
        ),
    )


#: The rewrites of the launch in their fixed order.
GEOMETRY: tuple[Rule, ...] = (
    _block_rule(64),
    _block_rule(128),
    _block_rule(512),
    benign_rule(
        "grid-stride",
        "one thread per element to a grid-stride loop over half the blocks",
        _grid_stride,
        Example(_elementwise("(n + 255) / 256", "256"), (_strided("((n + 255) / 256 + 1) / 2"),)),
    ),
)
