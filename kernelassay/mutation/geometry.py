"""Whether a kernel's result depends on the size of its blocks or of its grid.

A loop dealt out by ``i += blockDim.x`` or ``i += gridDim.x * blockDim.x`` visits every element
whatever the launch; a tile of fixed size, one thread per element, or a combine over a fixed number
of warps does not. A fault in the geometry of a kernel that follows any launch is no fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.bounds import Loop, as_loop, guards, is_shared_out, loops
from kernelassay.mutation.extents import bare, extents, literal
from kernelassay.mutation.nodes import callee, field, inside, operator
from kernelassay.mutation.tree import KernelTree
from kernelassay.mutation.warps import is_warp_split

_LOOPS = ("for_statement", "while_statement", "do_statement")


def kernel_named(tree: KernelTree, name: str) -> Node | None:
    """The kernel that a launch calls, if the source has it."""
    return next((k for k in tree.kernels if tree.name(k) == name), None)


def reached(tree: KernelTree, function: Node) -> list[Node]:
    """``function`` and the ``__device__`` functions it calls, directly or not."""
    helpers = {tree.name(f): f for f in tree.device_functions}
    found, pending = {function.id: function}, [function]
    while pending:
        for call in tree.nodes("call_expression", within=pending.pop()):
            helper = helpers.get(callee(tree, call))
            if helper is not None and helper.id not in found:
                found[helper.id] = helper
                pending.append(helper)
    return list(found.values())


def _text(tree: KernelTree, functions: list[Node]) -> str:
    return "\n".join(tree.text(f) for f in functions)


def most_threads(tree: KernelTree) -> int | None:
    """The largest block that ``launch`` can ask for; None if it is not made of literals."""
    found: list[int] = []
    for site in tree.launches():
        found += [n for n in map(int, re.findall(r"\b\d+\b", tree.text(site.block))) if n > 3]
        for name in tree.nodes("identifier", within=site.block):
            values = re.findall(rf"\b{tree.text(name)}\b\s*=\s*([^;]*);", tree.text(tree.launcher))
            if any(not value.strip().isdigit() for value in values):
                return None
            found += map(int, values)
    return max(found) if found else None


def shuffles(tree: KernelTree, kernel: Node) -> bool:
    """Whether lanes exchange registers, which asks for whole warps."""
    return "__shfl" in _text(tree, reached(tree, kernel))


def repeatable(tree: KernelTree, loop: Loop) -> bool:
    """Whether visiting an element twice, or in another thread, changes nothing.

    So it is where an iteration only stores what it computes from inputs: nothing outside of the
    body is updated, no atomic adds up, and no memory is updated in place.
    """
    if "__shared__" in tree.text(tree.function(loop.node)):
        return False
    return _only_stores(tree, loop)


def _only_stores(tree: KernelTree, loop: Loop) -> bool:
    body = loop.body
    start, end = body.start_byte, body.end_byte
    if "atomic" in tree.text(body):
        return False
    for node in tree.nodes("assignment_expression", "update_expression", within=body):
        target = field(node, "left" if node.type == "assignment_expression" else "argument")
        inside_loop = tree.enclosing(node, *_LOOPS)
        if target.type == "subscript_expression":
            if operator(tree, node) != "=" and _is_pointer(tree, target):
                return False
            continue
        while target.type in ("field_expression", "pointer_expression"):
            target = field(target, "argument")
        if target.type != "identifier":
            continue
        declared = tree.declared(target)
        is_inner = declared is not None and start <= declared.start < end
        if inside_loop is not None and declared is not None and not is_inner:
            return False
    return True


def _is_pointer(tree: KernelTree, subscript: Node) -> bool:
    base = bare(field(subscript, "argument"))
    declared = tree.declared(base) if base.type == "identifier" else None
    return declared is None or "*" in declared.type_text


def repeated_starts(tree: KernelTree) -> set[int]:
    """The starts of :func:`repeatable` loops dealt out to threads: an earlier one only repeats."""
    return {
        loop.start.id
        for loop in loops(tree)
        if loop.start is not None and is_shared_out(tree, loop) and repeatable(tree, loop)
    }


def repeats_only(tree: KernelTree, step: Node) -> bool:
    """Whether a step over the grid, made smaller, only visits elements again.

    ``step`` lies in a grid-stride loop's update or defines the variable that such loops add;
    each block still covers the elements up to the next block's first.
    """
    found = [
        loop
        for loop in loops(tree)
        if loop.step is not None
        and "gridDim" in extents(tree).expand(loop.step)
        and (inside(step, loop.update) or inside(step, extents(tree).resolve(loop.step)))
    ]
    return bool(found) and all(repeatable(tree, loop) for loop in found)


def runs_once(tree: KernelTree, loop: Loop) -> bool:
    """Whether a loop dealt out to threads never takes a second step.

    A grid-stride loop does not where its grid grows with the data; a grid with a cap
    (``if (blocks > 1024)``, ``?:``, ``min``) makes it step. Nor does a loop over a tile that has
    no more elements than the block has threads, if both are constants, nor one over the few
    elements past ``n / 4 * 4``.
    """
    if loop.step is None:
        return False
    if _is_remainder(tree, loop):
        return True
    if "gridDim" not in extents(tree).expand(loop.step):
        return _covers_at_once(tree, loop)
    launcher = tree.text(tree.launcher)
    name = tree.name(tree.function(loop.node))
    grids = [tree.text(site.grid) for site in tree.launches() if site.kernel == name]
    fixed = any(re.fullmatch(r"(dim3\()?\d+\)?", "".join(grid.split())) for grid in grids)
    return not fixed and re.search(r"\?|\bmin\(|\bif \(\w*(blocks|grid)", launcher) is None


def _is_remainder(tree: KernelTree, loop: Loop) -> bool:
    if loop.start is None or loop.test is None or not is_shared_out(tree, loop):
        return False
    size = re.escape("".join(tree.text(loop.test.bound).split()))
    return re.search(rf"\(*{size}/(\d+)\)*\*\1\b", _expanded(tree, loop.start)) is not None


def _covers_at_once(tree: KernelTree, loop: Loop) -> bool:
    starts = loop.start is not None and "threadIdx" in extents(tree).expand(loop.start)
    if not starts or loop.test is None or loop.step is None or loop.test.operator != "<":
        return False
    bound, step = _constant(tree, loop.test.bound), _constant(tree, loop.step)
    return bound is not None and step is not None and bound <= step


def _constant(tree: KernelTree, node: Node, depth: int = 4) -> int | None:
    """The value of products and quotients of literals and macros; None for anything else."""
    node = bare(node)
    value = literal(tree, node)
    if value is not None or depth == 0:
        return value
    if node.type == "identifier":
        macro = re.search(rf"#define {tree.text(node)} (\d+)\s", tree.source)
        return int(macro.group(1)) if macro else None
    if node.type != "binary_expression" or operator(tree, node) not in ("*", "/"):
        return None
    left, right = (_constant(tree, field(node, side), depth - 1) for side in ("left", "right"))
    if left is None or not right:
        return None
    return left * right if operator(tree, node) == "*" else left // right


def _expanded(tree: KernelTree, node: Node, depth: int = 6) -> str:
    """The compact text of an expression with each local replaced by its initialiser in scope."""
    if node.type == "identifier" and depth > 0:
        declared = tree.declared(node)
        value = declared.value if declared is not None else None
        if value is not None and not (value.start_byte <= node.start_byte < value.end_byte):
            return f"({_expanded(tree, value, depth - 1)})"
    if node.type == "cast_expression":
        return _expanded(tree, field(node, "value"), depth)
    if not node.children or node.type == "field_expression":
        return "".join(tree.text(node).split())
    return "".join(_expanded(tree, part, depth) for part in node.children)


# -- grids --------------------------------------------------------------------------------------


def _stores(tree: KernelTree, kernel: Node) -> list[Node]:
    """Writes to memory that outlives the kernel: no shared array, no local one."""
    pointers = {p.name for p in tree.parameters(kernel) if p.is_pointer}
    found = []
    for node in tree.nodes("assignment_expression", within=kernel):
        target = bare(field(node, "left"))
        if target.type not in ("subscript_expression", "pointer_expression"):
            continue
        if pointers & set(re.findall(r"\w+", extents(tree).expand(field(target, "argument")))):
            found.append(node)
    return found


def _grid_strides(tree: KernelTree, kernel: Node, axis: str) -> list[Loop]:
    return [
        loop
        for loop in loops(tree)
        if tree.function(loop.node).id == kernel.id
        and loop.step is not None
        and f"gridDim.{axis}" in extents(tree).expand(loop.step)
    ]


def any_grid(tree: KernelTree, kernel: Node, axis: str) -> bool:
    """Whether a kernel gives one result for every extent of its grid along ``axis``.

    It does where all stores lie in grid-stride loops that are :func:`repeatable` and nothing in
    them names the block's number.
    """
    found = _grid_strides(tree, kernel, axis)
    block = f"blockIdx.{axis}"
    return (
        bool(found)
        and all(repeatable(tree, loop) for loop in found)
        and all(block not in tree.text(loop.body) for loop in found)
        and all(any(inside(s, loop.body) for loop in found) for s in _stores(tree, kernel))
    )


def stops_extra_block(tree: KernelTree, kernel: Node, axis: str) -> bool:
    """Whether a test keeps a block past the grid's end along ``axis`` from storing anything."""
    block = re.compile(rf"blockIdx\.{axis}\b(?!%)")
    own = _stores(tree, kernel)
    for guard in guards(tree):
        if tree.function(guard.owner).id != kernel.id or not guard.pure:
            continue
        for test in guard.tests:
            if not test.upper or not block.search(_expanded(tree, test.index)):
                continue
            if "blockIdx" in _expanded(tree, test.bound):
                continue
            if guard.exits or guard.owner.type == "init_declarator":
                return True
            if all(inside(store, guard.owner) for store in own):
                return True
    return any_grid(tree, kernel, axis)


# -- blocks -------------------------------------------------------------------------------------

_WARP_COUNT = re.compile(r"blockDim\.x\s*(/\s*(32|warpSize|WARP\w*)\b|>>\s*5)")


def any_block(tree: KernelTree, kernel: Node, axis: str, *, larger: bool = False) -> bool:
    """Whether a kernel gives one result for every block of whole warps along ``axis``.

    Its thread numbers may start loops that step by ``blockDim``, choose the one thread that
    stores, or be taken apart in a combine that counts its warps itself. With ``larger`` the
    question is about larger blocks only: then a thread's guarded number in the grid is fine too.
    """
    if not all(_counts_its_warps(tree, function) for function in reached(tree, kernel)):
        return False
    if f"threadIdx.{axis}" not in tree.text(kernel):
        return False
    uses = _thread_uses(tree, kernel, axis, larger)
    return all(_follows_block(tree, use, axis, larger) for use in uses)


def _counts_its_warps(tree: KernelTree, function: Node) -> bool:
    """Whether a function that combines over warps does so for any number of them.

    A kernel's own shared memory without a combine is its threads' business: see their uses.
    """
    text = tree.text(function)
    is_kernel = any(function.id == kernel.id for kernel in tree.kernels)
    if "__shared__" not in text or (
        is_kernel and "__shfl" not in text and not _splits(tree, function)
    ):
        return True
    arrays = [
        array
        for declaration in tree.nodes("declaration", within=function)
        if "__shared__" in tree.text(declaration)
        for array in tree.nodes("array_declarator", within=declaration)
    ]
    sizes = [array.child_by_field_name("size") for array in arrays]
    # A dynamic array has no size here: the launch gives it one, for its own block size.
    fixed = all(size is not None and _is_warp(tree, size) for size in sizes)
    return fixed and bool(_WARP_COUNT.search(text))


def _splits(tree: KernelTree, function: Node) -> bool:
    return any(is_warp_split(tree, n) for n in tree.nodes("binary_expression", within=function))


def _is_warp(tree: KernelTree, node: Node) -> bool:
    """Whether a size is 32, the most warps that a block has."""
    text = tree.text(node)
    return text == "32" or re.search(rf"#define {re.escape(text)} 32\b", tree.source) is not None


def _thread_uses(tree: KernelTree, kernel: Node, axis: str, larger: bool) -> Iterator[Node]:
    """Where the thread's number along ``axis`` ends up, through locals made from it.

    With ``larger`` a guarded number in the grid is the end: each thread goes on by itself.
    """
    pending = [
        node
        for node in tree.nodes("field_expression", within=kernel)
        if tree.text(node) == f"threadIdx.{axis}"
    ]
    while pending:
        node = pending.pop()
        if _is_own_lane(tree, node, larger):
            continue
        kinds = ("init_declarator", "expression_statement", "subscript_argument_list")
        holder = tree.enclosing(node, *kinds)
        if holder is None or holder.type != "init_declarator" or _in_header(tree, node):
            yield node
            continue
        name = next(tree.text(n) for n in tree.nodes("identifier", within=holder))
        found = [
            other
            for other in tree.nodes("identifier", within=kernel)
            if tree.text(other) == name and other.start_byte > holder.end_byte
        ]
        if not (larger and found and _is_guarded(tree, found[0], axis)):
            pending += found


def _is_own_lane(tree: KernelTree, node: Node, larger: bool) -> bool:
    """Whether a thread number is split into lane and warp where any number of warps will do.

    So it is in a combine that counts them (see :func:`_counts_its_warps`); and a lane is a lane
    in a larger block too, if warps do not meet in shared memory.
    """
    split = tree.parent(node)
    if split is None or split.type != "binary_expression" or not is_warp_split(tree, split):
        return False
    text = tree.text(tree.function(node))
    if _WARP_COUNT.search(text):
        return True
    return larger and operator(tree, split) in ("%", "&") and "__shared__" not in text


def _in_header(tree: KernelTree, node: Node) -> bool:
    loop = tree.enclosing(node, "for_statement")
    return loop is not None and node.end_byte <= field(loop, "body").start_byte


def _follows_block(tree: KernelTree, use: Node, axis: str, larger: bool) -> bool:
    known = extents(tree)
    if _in_header(tree, use):
        node = tree.enclosing(use, "for_statement")
        loop = as_loop(tree, node) if node is not None else None
        in_start = loop is not None and loop.start is not None and inside(use, loop.start)
        if in_start and loop is not None and loop.step is not None:
            follows = f"blockDim.{axis}" in known.expand(loop.step)
            return follows or (larger and _only_stores(tree, loop))
    test = tree.parent(use)
    if test is not None and test.type == "binary_expression" and operator(tree, test) == "==":
        return literal(tree, field(test, "right")) == 0
    return False


def _is_guarded(tree: KernelTree, use: Node, axis: str) -> bool:
    """Whether a use is of a thread's number in the grid where tests keep it in bounds.

    With a tile of fixed size the surplus threads repeat the next tile's results.
    """
    own = _expanded(tree, use)
    moving = rf"blockIdx\.{axis}\)*\*blockDim\.{axis}\)*\+\(*threadIdx\.{axis}"
    fixed = rf"blockIdx\.\w.*\*(\d+|[A-Z]\w*)\)*\+\(*threadIdx\.{axis}"
    function = tree.function(use)
    is_number = re.search(moving, own) or (
        "blockDim" not in tree.text(function) and re.search(fixed, own)
    )
    if use.type != "identifier" or not is_number:
        return False
    name = tree.text(use)
    return any(
        test.upper and tree.text(test.index) == name
        for guard in guards(tree)
        if tree.function(guard.owner).id == function.id
        for test in guard.tests
    )
