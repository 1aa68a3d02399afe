"""Boundary rules on counting loops.

A loop whose iterations are dealt out to threads (``c = threadIdx.x; c < n; c += blockDim.x``)
belongs to first-element-skip and last-element-skip; the loop-start and loop-end rules take the
other loops, so that no two rules make the same mutant.
"""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.bounds import (
    BoundTest,
    Loop,
    has_barrier,
    is_shared_out,
    loops,
    warp_combine_tests,
)
from kernelassay.mutation.examples import edited, kernel
from kernelassay.mutation.extents import (
    bare,
    extents,
    floor_of_ceil,
    literal,
    scaled,
    shifted,
    wrap,
)
from kernelassay.mutation.geometry import runs_once
from kernelassay.mutation.nodes import field, operator
from kernelassay.mutation.rewrites import moved
from kernelassay.mutation.rule import Example, Mutation, Rule
from kernelassay.mutation.tree import KernelTree, mutation, replace


def _serial_loops(tree: KernelTree) -> Iterator[Loop]:
    return (loop for loop in loops(tree) if not is_shared_out(tree, loop))


def _start_plus_one(tree: KernelTree) -> Iterator[Mutation]:
    for loop in _serial_loops(tree):
        # Halving loops start at an offset, not at an element: see shuffle-offset-halved.
        if loop.start is not None and loop.motion != "halving":
            by = -1 if loop.motion == "down" else 1
            yield mutation(replace(loop.start, shifted(tree, loop.start, by)))


def _is_tail_continued(tree: KernelTree, loop: Loop) -> bool:
    """Whether the next statement is a loop that goes on with this one's variable."""
    after = loop.node.next_named_sibling
    while after is not None and after.type in ("comment", "preproc_call"):
        after = after.next_named_sibling
    if after is None or after.type not in ("for_statement", "while_statement"):
        return False
    if after.child_by_field_name("initializer") is not None:
        return False
    condition = after.child_by_field_name("condition")
    return condition is not None and any(
        tree.text(name) == loop.variable for name in tree.nodes("identifier", within=condition)
    )


def _end_minus_one(tree: KernelTree) -> Iterator[Mutation]:
    combines = {test.node.id for test in warp_combine_tests(tree)}
    for loop in _serial_loops(tree):
        test = loop.test
        if test is None or test.node.id in combines or _is_tail_continued(tree, loop):
            continue
        if loop.geometric:
            # One bit of the variable is one iteration: `s > 32` ends earlier as `s > 64`.
            yield mutation(replace(test.node, _geometric_end(tree, loop, test, fewer=True)))
        else:
            yield mutation(replace(test.node, moved(tree, test, loose=False)))


def _geometric_end(tree: KernelTree, loop: Loop, test: BoundTest, *, fewer: bool) -> str:
    bound = test.bound
    if literal(tree, bound) == 0:
        return test.text(tree, test.operator, "1")
    larger = fewer == (loop.motion == "halving")
    text = scaled(tree, bound, up=2) if larger else scaled(tree, bound, down=2)
    return test.text(tree, test.operator, text)


def _is_plain(node: Node) -> bool:
    return bare(node).type in ("identifier", "field_expression")


def _end_plus_one(tree: KernelTree) -> Iterator[Mutation]:
    known = extents(tree)
    for loop in _serial_loops(tree):
        test = loop.test
        if test is None or (_is_plain(test.bound) and test.operator in ("<", ">")):
            continue
        if loop.geometric:
            # Past 0 a halving loop never ends.
            if (literal(tree, test.bound) or 0) > 1:
                yield mutation(replace(test.node, _geometric_end(tree, loop, test, fewer=False)))
        elif floor_of_ceil(tree, known.resolve(test.bound)) is None:
            by = -1 if loop.motion == "down" else 1
            text = test.text(tree, test.operator, shifted(tree, test.bound, by))
            yield mutation(replace(test.node, text))


def _end_inclusive(tree: KernelTree) -> Iterator[Mutation]:
    known = extents(tree)
    for loop in loops(tree):
        test = loop.test
        if test is None or test.operator not in ("<", ">") or not _is_plain(test.bound):
            continue
        # One more guarded tile adds zeros, and a halving loop would never end.
        tiles = floor_of_ceil(tree, known.resolve(test.bound)) is not None
        if tiles or _is_tile_loop(tree, loop) or loop.motion == "halving":
            continue
        # A lane that a whole warp lies below does not exist: a scan's extra step does nothing.
        if loop.motion == "doubling" and "__shfl_up_sync" in tree.text(loop.body):
            continue
        yield mutation(replace(test.node, moved(tree, test, loose=True)))


def _is_tile_loop(tree: KernelTree, loop: Loop) -> bool:
    """Whether the loop walks over tiles by ``k0 += TILE`` and the block meets in its body."""
    return (
        loop.motion == "up"
        and loop.step is not None
        and literal(tree, loop.step) != 1
        and not is_shared_out(tree, loop)
        and has_barrier(tree, loop.body)
    )


def _step_double(tree: KernelTree) -> Iterator[Mutation]:
    for loop in loops(tree):
        if runs_once(tree, loop):
            continue
        if loop.step is None:
            symbol = "+=" if loop.motion == "up" else "-="
            yield mutation(replace(loop.update, f"{loop.variable} {symbol} 2"))
        else:
            yield mutation(replace(loop.step, scaled(tree, loop.step, up=2)))


def _skip_last_tile(tree: KernelTree) -> Iterator[Mutation]:
    known = extents(tree)
    seen: set[int] = set()
    for loop in loops(tree):
        test = loop.test
        if test is None or loop.motion != "up":
            continue
        tiles = known.resolve(test.bound)
        floor = floor_of_ceil(tree, tiles)
        if floor is not None:
            if tiles.id not in seen:
                seen.add(tiles.id)
                yield mutation(replace(tiles, floor))
        elif _is_tile_loop(tree, loop) and loop.step is not None and test.operator == "<":
            text = f"{tree.text(test.index)} + {wrap(tree, loop.step)} <= {tree.text(test.bound)}"
            yield mutation(replace(test.node, text))


def _first_element_skip(tree: KernelTree) -> Iterator[Mutation]:
    for loop in loops(tree):
        if is_shared_out(tree, loop) and loop.start is not None:
            yield mutation(replace(loop.start, shifted(tree, loop.start, 1)))


def _last_element_skip(tree: KernelTree) -> Iterator[Mutation]:
    combines = {test.node.id for test in warp_combine_tests(tree)}
    for loop in loops(tree):
        test = loop.test
        if test is None or test.node.id in combines or not is_shared_out(tree, loop):
            continue
        yield mutation(replace(test.node, moved(tree, test, loose=False)))


def _last_block_skip(tree: KernelTree) -> Iterator[Mutation]:
    for function in tree.kernels:
        used = {
            tree.text(node)
            for node in tree.nodes("field_expression", within=function)
            if tree.text(field(node, "argument")) == "blockIdx"
        }
        start = field(function, "body").start_byte
        for axis in "xyz":
            if f"blockIdx.{axis}" in used:
                text = f"{{\n    if (blockIdx.{axis} == gridDim.{axis} - 1) return;"
                yield mutation(replace((start, start + 1), text))


def _power_of_two_reduction(tree: KernelTree) -> Iterator[Mutation]:
    known = extents(tree)
    for node in tree.nodes("binary_expression"):
        symbol, right = operator(tree, node), literal(tree, field(node, "right"))
        if (symbol, right) not in (("/", 2), (">>", 1)):
            continue
        floor = floor_of_ceil(tree, node)
        if floor is None or known.fixed(node):
            continue
        yield mutation(replace(node, floor))
    for loop in loops(tree):
        # A start rounded up to a power of two is as good as `(n + 1) / 2` steps.
        if loop.motion != "halving" or loop.start is None:
            continue
        floor = floor_of_ceil(tree, loop.start)
        if floor is not None and known.fixed(loop.start):
            yield mutation(replace(loop.start, floor))


def _size_round_down(tree: KernelTree) -> Iterator[Mutation]:
    known = extents(tree)
    for node in tree.nodes("binary_expression"):
        if not tree.is_bound(node) or operator(tree, node) not in ("<", "<=", ">", ">="):
            continue
        sizes = set(known.sizes(tree.function(node)))
        for one, two in (("left", "right"), ("right", "left")):
            side, other = bare(field(node, one)), field(node, two)
            if side.type == "identifier" and tree.text(side) in sizes and not known.fixed(other):
                yield mutation(replace(side, f"({tree.text(side)} & ~31)"))


def _early_exit_block(tree: KernelTree) -> Iterator[Mutation]:
    shared_out = {loop.node.id for loop in loops(tree) if is_shared_out(tree, loop)}
    for node in tree.nodes("continue_statement"):
        around = tree.enclosing(node, "for_statement", "while_statement", "do_statement")
        function = tree.function(node)
        returns_nothing = any(function.id == kernel_.id for kernel_ in tree.kernels)
        if around is not None and around.id in shared_out and returns_nothing:
            yield mutation(replace(node, "return;"))


_SERIAL = "float s = 0.0f;\nfor (int j = 0; j < n; ++j) s += x[j];\ny[0] = s;"
_STRIDED = "for (int c = threadIdx.x; c < n; c += blockDim.x) y[c] = x[c];"
_TREE = "for (int s = blockDim.x / 2; s > 0; s >>= 1) {}"
_TILES = "for (int t = 0; t < (n + 15) / 16; ++t) { __syncthreads(); }"
_STEPS = "for (int k = 0; k < n; k += 16) { __syncthreads(); }"


LOOP_RULES = (
    Rule(
        "loop-start-plus-one",
        "boundary",
        "`for (i = 0` to `i = 1`",
        "a serial loop leaves out its first element",
        _start_plus_one,
        (edited(_SERIAL, "j = 0", "j = 1"), edited(_STEPS, "k = 0", "k = 1")),
    ),
    Rule(
        "loop-end-minus-one",
        "boundary",
        "a loop ends one iteration early",
        "a serial loop leaves out its last element, a halving loop its last step",
        _end_minus_one,
        (edited(_SERIAL, "j < n", "j < n - 1"), edited(_TREE, "s > 0", "s > 1")),
    ),
    Rule(
        "loop-end-plus-one",
        "boundary",
        "a computed, constant or inclusive loop bound plus one",
        "a loop reads one element too many",
        _end_plus_one,
        (
            edited(
                "for (int j = 0; j < 4; ++j) y[j] = x[j];",
                "j < 4",
                "j < 5",
            ),
            edited(
                "for (int j = 0; j <= n; ++j) y[j] = x[j];",
                "j <= n",
                "j <= n + 1",
            ),
        ),
    ),
    Rule(
        "loop-end-inclusive",
        "boundary",
        "`i < n` to `i <= n` in a loop",
        "a loop reads one element past its row",
        _end_inclusive,
        (edited(_SERIAL, "j < n", "j <= n"), edited(_STRIDED, "c < n", "c <= n")),
    ),
    Rule(
        "loop-step-double",
        "boundary",
        "the step of a loop doubled",
        "a loop handles every second element",
        _step_double,
        (
            edited(_SERIAL, "++j", "j += 2"),
            edited(_STRIDED, "blockDim.x", "blockDim.x * 2"),
            edited(_TREE, ">>= 1", ">>= 2"),
        ),
    ),
    Rule(
        "loop-skip-last-tile",
        "boundary",
        "the ceil-divided tile count to the floor",
        "the last, partial tile is left out",
        _skip_last_tile,
        (edited(_TILES, "(n + 15) / 16", "n / 16"), edited(_STEPS, "k < n", "k + 16 <= n")),
    ),
)

FIRST_ELEMENT = Rule(
    "first-element-skip",
    "boundary",
    "a loop dealt out to threads starts one later",
    "the first element of each row is left out",
    _first_element_skip,
    (edited(_STRIDED, "threadIdx.x", "threadIdx.x + 1"),),
)
LAST_ELEMENT = Rule(
    "last-element-skip",
    "boundary",
    "a loop dealt out to threads ends one earlier",
    "the last element of each row is left out",
    _last_element_skip,
    (edited(_STRIDED, "c < n", "c < n - 1"),),
)
LAST_BLOCK = Rule(
    "last-block-skip",
    "boundary",
    "the last block returns at once",
    "a grid that is one block short along one axis",
    _last_block_skip,
    (
        Example(
            kernel("y[blockIdx.x] = 0.0f;"),
            (kernel("    if (blockIdx.x == gridDim.x - 1) return;\ny[blockIdx.x] = 0.0f;"),),
        ),
    ),
)
POWER_OF_TWO = Rule(
    "power-of-two-reduction",
    "boundary",
    "`(n + 1) / 2` halving to `n / 2`",
    "a tree reduction that is right only for powers of two",
    _power_of_two_reduction,
    (
        edited(
            "for (int m = n; m > 1; m = (m + 1) / 2) {}",
            "(m + 1) / 2",
            "m / 2",
        ),
        edited("for (int s = (n + 1) / 2; s > 0; s >>= 1) {}", "(n + 1) / 2", "n / 2"),
    ),
)
ROUND_DOWN = Rule(
    "size-round-down",
    "boundary",
    "a run-time size n in a bound to n & ~31",
    "a loop or guard that handles whole warps only",
    _size_round_down,
    (edited(_SERIAL, "j < n", "j < (n & ~31)"),),
)
EARLY_EXIT = Rule(
    "early-exit-block",
    "boundary",
    "`return` in place of `continue` in a loop dealt out to threads",
    "a thread that skips one element skips all its later ones",
    _early_exit_block,
    (
        edited(
            "for (int c = threadIdx.x; c < n; c += blockDim.x) { if (x[c] < 0.0f) continue; }",
            "continue;",
            "return;",
        ),
    ),
)
