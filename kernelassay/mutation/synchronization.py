"""The synchronization family: barriers, atomics, warp shuffles, buffers that alternate."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tree_sitter import Node

from kernelassay.mutation.barriers import is_block_barrier, is_warp_barrier
from kernelassay.mutation.examples import edited, example
from kernelassay.mutation.extents import bare
from kernelassay.mutation.nodes import arguments, callee, field
from kernelassay.mutation.rewrites import without_statement
from kernelassay.mutation.rule import Example, Find, Mutation, Rule
from kernelassay.mutation.synchronization_exchange import (
    atomic_to_plain,
    double_buffer_no_flip,
    last_warp_skip,
    shuffle_direction,
    shuffle_mask_narrow,
    shuffle_offset_halved,
)
from kernelassay.mutation.tree import KernelTree, delete, mutation, replace

_LOOPS = ("for_statement", "while_statement", "do_statement")
_NO_STATEMENT = ("comment", "preproc_call")
_FENCES = ("__threadfence", "__threadfence_block", "__threadfence_system")


def _statements(tree: KernelTree, test: Callable[[KernelTree, Node], bool]) -> Iterator[Node]:
    """The statements that consist of one call that passes ``test``."""
    for call in tree.nodes("call_expression"):
        statement = tree.parent(call)
        alone = statement is not None and statement.type == "expression_statement"
        if statement is not None and alone and test(tree, call):
            yield statement


def _barriers(tree: KernelTree) -> Iterator[Node]:
    return _statements(tree, is_block_barrier)


# -- barriers -----------------------------------------------------------------------------------


def _is_loop_tail(tree: KernelTree, barrier: Node) -> bool:
    """Whether a barrier only keeps the next iteration from overwriting what is still read.

    It is the last statement of a loop's body that has an earlier barrier, or the first of a
    body that has a later one.
    """
    block = tree.parent(barrier)
    outer = tree.parent(block) if block is not None else None
    if block is None or outer is None or outer.type not in _LOOPS:
        return False
    inside = [b for b in _barriers(tree) if block.start_byte < b.start_byte < block.end_byte]
    statements = [c for c in block.named_children if c.type not in _NO_STATEMENT]
    at_end = statements[-1].id == barrier.id and inside[0].id != barrier.id
    return at_end or (statements[0].id == barrier.id and len(inside) > 1)


def _barrier_delete(tree: KernelTree) -> Iterator[Mutation]:
    for barrier in _barriers(tree):
        if not _is_loop_tail(tree, barrier):
            yield mutation(without_statement(tree, barrier))


def _loop_tail_barrier_delete(tree: KernelTree) -> Iterator[Mutation]:
    for barrier in _barriers(tree):
        if _is_loop_tail(tree, barrier):
            yield mutation(without_statement(tree, barrier))


def _barrier_to_syncwarp(tree: KernelTree) -> Iterator[Mutation]:
    for barrier in _barriers(tree):
        yield mutation(replace(barrier, "__syncwarp();"))


def _barrier_to_fence(tree: KernelTree) -> Iterator[Mutation]:
    for barrier in _barriers(tree):
        yield mutation(replace(barrier, "__threadfence_block();"))


def _barrier_into_branch(tree: KernelTree) -> Iterator[Mutation]:
    for barrier in _barriers(tree):
        text = tree.text(barrier)
        yield mutation(replace(barrier, f"if (threadIdx.x < blockDim.x / 2) {text}"))


def _barrier_hoist(tree: KernelTree) -> Iterator[Mutation]:
    for barrier in _barriers(tree):
        before = barrier.prev_named_sibling
        while before is not None and before.type == "comment":
            before = before.prev_named_sibling
        if before is None or not _touches_shared_state(tree, before):
            continue
        if before.prev_named_sibling is not None and _is_barrier(tree, before.prev_named_sibling):
            continue  # next to another barrier it is as good as deleted
        if _turns_loop(tree, before, barrier):
            continue
        start = before.start_byte
        pragma = before.prev_named_sibling
        while pragma is not None and pragma.type == "preproc_call":
            start, pragma = pragma.start_byte, pragma.prev_named_sibling
        yield mutation(
            replace((start, start), f"{tree.text(barrier)} "),
            without_statement(tree, barrier),
        )


def _turns_loop(tree: KernelTree, first: Node, barrier: Node) -> bool:
    """Whether ``{ work; barrier }`` of a loop becomes ``{ barrier; work }`` and nothing follows.

    The work of two iterations stays apart; only shared memory read after the loop would tell.
    """
    block = tree.parent(barrier)
    loop = tree.parent(block) if block is not None else None
    if block is None or loop is None or loop.type not in _LOOPS:
        return False
    statements = [c for c in block.named_children if c.type not in _NO_STATEMENT]
    if [s.id for s in statements] != [first.id, barrier.id]:
        return False
    function = tree.function(barrier)
    shared = {
        tree.text(name)
        for declaration in tree.nodes("declaration", within=function)
        if "__shared__" in tree.text(declaration)
        for name in tree.nodes("identifier", within=declaration)
    }
    return not any(
        tree.text(name) in shared and name.start_byte > loop.end_byte
        for name in tree.nodes("identifier", within=function)
    )


def _is_barrier(tree: KernelTree, statement: Node) -> bool:
    return any(barrier.id == statement.id for barrier in _barriers(tree))


def _touches_shared_state(tree: KernelTree, statement: Node) -> bool:
    """Whether moving a barrier over a statement can matter: it accesses shared memory.

    An access through a pointer parameter of the kernel is one of global memory, which the
    threads of a block seldom exchange; any other subscript or dereference counts.
    """
    function = tree.function(statement)
    is_kernel = any(function.id == kernel_.id for kernel_ in tree.kernels)
    private = {p.name for p in tree.parameters(function)} if is_kernel else set()
    private |= _register_arrays(tree, function)
    for node in tree.nodes("subscript_expression", "pointer_expression", within=statement):
        base = bare(field(node, "argument"))
        while base.type in ("subscript_expression", "binary_expression"):
            base = bare(field(base, "argument" if base.type[0] == "s" else "left"))
        if base.type != "identifier" or tree.text(base) not in private:
            return True
    names = {tree.name(f) for f in tree.device_functions}
    return any(
        callee(tree, call) in names and any(tree.kind(a) == "pointer" for a in arguments(call))
        for call in tree.nodes("call_expression", within=statement)
    )


def _register_arrays(tree: KernelTree, function: Node) -> set[str]:
    """The names of local arrays that every thread has for itself."""
    found = set()
    for declaration in tree.nodes("declaration", within=function):
        if "__shared__" in tree.text(declaration):
            continue
        for array in tree.nodes("array_declarator", within=declaration):
            inner = field(array, "declarator")
            if inner.type == "identifier":
                found.add(tree.text(inner))
    return found


def _syncwarp_delete(tree: KernelTree) -> Iterator[Mutation]:
    for statement in _statements(tree, is_warp_barrier):
        yield mutation(without_statement(tree, statement))


def _threadfence_drop(tree: KernelTree) -> Iterator[Mutation]:
    for statement in _statements(tree, lambda tree, call: callee(tree, call) in _FENCES):
        yield mutation(without_statement(tree, statement))


def _volatile_drop(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("type_qualifier"):
        if tree.text(node) == "volatile":
            end = node.end_byte + (tree.span(node.end_byte, node.end_byte + 1) == " ")
            yield mutation(delete((node.start_byte, end)))


# -- the rules ----------------------------------------------------------------------------------

_SHARED = "__shared__ float s[32];\n"
_ONE = f"{_SHARED}s[threadIdx.x] = x[threadIdx.x];\n__syncthreads();\ny[threadIdx.x] = s[0];"
_TILES = (
    f"{_SHARED}for (int t = 0; t < n; ++t) {{\n    s[threadIdx.x] = x[t];\n"
    "    __syncthreads();\n    y[t] += s[0];\n    __syncthreads();\n}"
)
_WARP = (
    "float v = x[threadIdx.x];\n"
    "for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);\ny[0] = v;"
)
_COMBINE = (
    f"{_SHARED}int lane = threadIdx.x & 31;\nfloat v = lane < blockDim.x / 32 ? s[lane] : 0.0f;"
)


def _rule(rule_id: str, what: str, bug: str, find: Find, *examples: Example) -> Rule:
    return Rule(rule_id, "synchronization", what, bug, find, examples)


_BARRIER = "__syncthreads();"
_BUG_RACE = "threads read shared memory before the others have written it"

RULES: tuple[Rule, ...] = (
    _rule(
        "barrier-delete",
        "`__syncthreads()` removed",
        _BUG_RACE,
        _barrier_delete,
        edited(_ONE, _BARRIER, ""),
        edited(_TILES, _BARRIER, ""),
    ),
    _rule(
        "barrier-to-syncwarp",
        "`__syncthreads()` to `__syncwarp()`",
        "a barrier of one warp where several exchange data: right for blocks of 32",
        _barrier_to_syncwarp,
        edited(_ONE, _BARRIER, "__syncwarp();"),
    ),
    _rule(
        "barrier-to-fence",
        "`__syncthreads()` to `__threadfence_block()`",
        "a fence orders one thread's writes, and does not wait for the others",
        _barrier_to_fence,
        edited(_ONE, _BARRIER, "__threadfence_block();"),
    ),
    _rule(
        "barrier-hoist",
        "a barrier moved before the access of shared memory ahead of it",
        _BUG_RACE,
        _barrier_hoist,
        example(
            _ONE,
            f"{_SHARED}__syncthreads(); s[threadIdx.x] = x[threadIdx.x];\n\ny[threadIdx.x] = s[0];",
        ),
    ),
    _rule(
        "barrier-into-branch",
        "a barrier made conditional on `threadIdx.x < blockDim.x / 2`",
        "a barrier in divergent code, which half of the block never reaches",
        _barrier_into_branch,
        edited(_ONE, _BARRIER, f"if (threadIdx.x < blockDim.x / 2) {_BARRIER}"),
    ),
    _rule(
        "loop-tail-barrier-delete",
        "the barrier between the last read of a tile and the next write removed",
        "a tile is overwritten while slower threads still read it",
        _loop_tail_barrier_delete,
        example(_TILES, _TILES.replace("+= s[0];\n    __syncthreads();", "+= s[0];\n    ")),
    ),
    _rule(
        "syncwarp-delete",
        "`__syncwarp()` removed",
        "code that relies on lanes running in lockstep",
        _syncwarp_delete,
        edited("x[0];\n__syncwarp();", "__syncwarp();", ""),
    ),
    _rule(
        "atomic-to-plain",
        "`atomicAdd(&x, v)` to `x += v`, and the like",
        "concurrent updates get lost",
        atomic_to_plain,
        edited("atomicAdd(&y[0], x[0]);", "atomicAdd(&y[0], x[0])", "y[0] += x[0]"),
        edited("atomicAdd(y + 1, x[0]);", "atomicAdd(y + 1, x[0])", "*(y + 1) += x[0]"),
        edited(
            "__shared__ int c;\nint old = atomicAdd(&c, 1);",
            "atomicAdd(&c, 1)",
            "((c += 1) - 1)",
        ),
    ),
    _rule(
        "shuffle-direction",
        "`__shfl_down_sync` to `__shfl_up_sync`, and back",
        "a warp reduction leaves its result in the wrong lane",
        shuffle_direction,
        edited(_WARP, "__shfl_down_sync", "__shfl_up_sync"),
    ),
    _rule(
        "shuffle-offset-halved",
        "the first offset of a warp reduction halved",
        "a warp reduction that covers 16 lanes",
        shuffle_offset_halved,
        edited(_WARP, "o = 16", "o = 8"),
        edited(
            "float v = x[0];\nv += __shfl_xor_sync(0xffffffffu, v, 16);",
            "16",
            "8",
        ),
    ),
    _rule(
        "shuffle-mask-narrow",
        "a shuffle's full mask to its low half",
        "lanes take part in a shuffle that does not name them",
        shuffle_mask_narrow,
        edited(_WARP, "0xffffffffu", "0x0000ffffu"),
    ),
    _rule(
        "last-warp-skip",
        "the cross-warp combine reads one partial result too few",
        "the last warp's partial result is lost",
        last_warp_skip,
        edited(_COMBINE, "blockDim.x / 32", "blockDim.x / 32 - 1"),
    ),
    _rule(
        "volatile-drop",
        "`volatile` removed",
        "the compiler keeps in a register what another thread has changed",
        _volatile_drop,
        edited("volatile float* v = y;\nv[0] = x[0];", "volatile ", ""),
    ),
    _rule(
        "threadfence-drop",
        "`__threadfence()` removed",
        "another block sees a flag before the data that it announces",
        _threadfence_drop,
        edited("y[0] = x[0];\n__threadfence();", "__threadfence();", ""),
    ),
    _rule(
        "double-buffer-no-flip",
        "the index of a double buffer no longer alternates",
        "one buffer is both filled and read",
        double_buffer_no_flip,
        edited(
            "int b = 0;\nfor (int t = 0; t < n; ++t) {\n    y[b] = x[t];\n    b ^= 1;\n}",
            "b ^= 1;",
            "",
        ),
        edited(
            "for (int t = 0; t < n; ++t) {\n    int b = t & 1;\n    y[b] = x[t];\n}",
            "t & 1",
            "0",
        ),
    ),
)
