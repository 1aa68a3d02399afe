"""Finders for atomics, warp shuffles and alternating buffers (see ``synchronization``)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.bounds import Loop, loops, warp_combine_tests
from kernelassay.mutation.extents import bare, extents, literal, scaled, wrap
from kernelassay.mutation.geometry import most_threads
from kernelassay.mutation.nodes import arguments, callee, field, inside, operator
from kernelassay.mutation.rewrites import moved, without_statement
from kernelassay.mutation.rule import Mutation
from kernelassay.mutation.tree import KernelTree, mutation, replace

_LOOPS = ("for_statement", "while_statement", "do_statement")


# -- atomics ------------------------------------------------------------------------------------


def atomic_to_plain(tree: KernelTree) -> Iterator[Mutation]:
    """Atomic updates as plain reads and writes."""
    for call in tree.nodes("call_expression"):
        given = arguments(call) if callee(tree, call).startswith("atomic") else []
        if len(given) != 2:
            continue  # atomicCAS drives a retry loop, which plain code would never leave
        target, value = _pointee(tree, given[0]), tree.text(given[1])
        wrapped = wrap(tree, given[1])
        plain, undone = {
            "atomicAdd": (f"{target} += {value}", f" - {wrapped}"),
            "atomicSub": (f"{target} -= {value}", f" + {wrapped}"),
            "atomicMax": (f"{target} = max({target}, {value})", ""),
            "atomicMin": (f"{target} = min({target}, {value})", ""),
            "atomicExch": (f"{target} = {value}", ""),
            "atomicOr": (f"{target} |= {value}", ""),
            "atomicAnd": (f"{target} &= {value}", ""),
        }.get(callee(tree, call), ("", ""))
        outer = tree.parent(call)
        if not plain or outer is None:
            continue
        if outer.type == "expression_statement":
            yield mutation(replace(call, plain))
        elif undone:
            # The old value, as the atomic returns it.
            yield mutation(replace(call, f"(({plain}){undone})"))


def _pointee(tree: KernelTree, pointer: Node) -> str:
    """What a pointer expression points at: ``a[i]`` for ``&a[i]``, ``*p`` for ``p``."""
    if pointer.type == "pointer_expression" and operator(tree, pointer) == "&":
        return tree.text(field(pointer, "argument"))
    return f"*{wrap(tree, pointer)}"


# -- warps --------------------------------------------------------------------------------------


def _shuffles(tree: KernelTree, *kinds: str) -> Iterator[Node]:
    names = {f"__shfl_{kind}_sync" for kind in kinds}
    return (call for call in tree.nodes("call_expression") if callee(tree, call) in names)


def shuffle_direction(tree: KernelTree) -> Iterator[Mutation]:
    """Shuffles down as shuffles up, and back."""
    other = {"__shfl_down_sync": "__shfl_up_sync", "__shfl_up_sync": "__shfl_down_sync"}
    for call in _shuffles(tree, "down", "up"):
        function = field(call, "function")
        yield mutation(replace(function, other[tree.text(function)]))


def shuffle_offset_halved(tree: KernelTree) -> Iterator[Mutation]:
    """Warp reductions that start at half their first offset."""
    offsets = [(call, arguments(call)[2]) for call in _shuffles(tree, "down", "up", "xor")]
    for loop in loops(tree):
        feeds = any(
            tree.text(bare(offset)) == loop.variable
            and loop.node.start_byte < call.start_byte < loop.node.end_byte
            for call, offset in offsets
        )
        if feeds and loop.motion == "halving" and loop.start is not None:
            if _covers_half(tree, loop):
                continue
            yield mutation(replace(loop.start, scaled(tree, loop.start, down=2)))
    for _, offset in offsets:
        if literal(tree, offset) == 16:  # the first step of an unrolled warp reduction
            yield mutation(replace(offset, "8"))


def _covers_half(tree: KernelTree, loop: Loop) -> bool:
    """Whether at most half of the lanes hold a warp's result, so that half the offset will do.

    The loop combines what ``lane < blockDim.x / 32 ? partial[lane] : identity`` has read.
    """
    before = loop.node.prev_named_sibling
    while before is not None and before.type == "comment":
        before = before.prev_named_sibling
    if before is None or loop.start is None:
        return False
    combines = any(inside(test.node, before) for test in warp_combine_tests(tree))
    threads = most_threads(tree)
    first = literal(tree, extents(tree).resolve(loop.start))
    return combines and threads is not None and (first or 16) >= threads // 32


_FULL_MASK = re.compile(r"(?i)0xffffffffu?l*|\w*(full|mask)\w*|~0u?|-1")


def shuffle_mask_narrow(tree: KernelTree) -> Iterator[Mutation]:
    """Shuffles whose full mask names the low half of the warp only."""
    for call in tree.nodes("call_expression"):
        name = callee(tree, call)
        if not name.startswith("__shfl") or not name.endswith("_sync"):
            continue
        mask = arguments(call)[0]
        if _FULL_MASK.fullmatch(tree.text(extents(tree).resolve(mask))):
            yield mutation(replace(mask, "0x0000ffffu"))


def last_warp_skip(tree: KernelTree) -> Iterator[Mutation]:
    """Combines of one partial result per warp that read one too few."""
    for test in warp_combine_tests(tree):
        yield mutation(replace(test.node, moved(tree, test, loose=False)))


# -- alternating buffers ------------------------------------------------------------------------


def double_buffer_no_flip(tree: KernelTree) -> Iterator[Mutation]:
    """Double buffers whose index stays the same."""
    for node in tree.nodes("assignment_expression", "init_declarator"):
        if tree.enclosing(node, *_LOOPS) is None:
            continue
        assigned = node.type == "assignment_expression"
        target = field(node, "left" if assigned else "declarator")
        value = bare(field(node, "right")) if assigned else node.child_by_field_name("value")
        if target.type != "identifier" or value is None:
            continue
        if assigned and _is_toggle(tree, node, tree.text(target), value):
            statement = tree.parent(node)
            if statement is not None and statement.type == "expression_statement":
                yield mutation(without_statement(tree, statement))
        elif _is_parity(tree, bare(value)):
            yield mutation(replace(value, "0"))


def _is_toggle(tree: KernelTree, assignment: Node, name: str, value: Node) -> bool:
    """``b ^= 1``, ``b = 1 - b``, ``b = b ^ 1`` or ``b = !b``."""
    if operator(tree, assignment) == "^=":
        return literal(tree, value) == 1
    if operator(tree, assignment) != "=":
        return False
    if value.type == "unary_expression":
        return operator(tree, value) == "!" and tree.text(field(value, "argument")) == name
    if value.type != "binary_expression":
        return False
    left, right = field(value, "left"), field(value, "right")
    if operator(tree, value) == "-":
        return literal(tree, left) == 1 and right.type == "identifier"
    return operator(tree, value) == "^" and tree.text(left) == name and literal(tree, right) == 1


def _is_parity(tree: KernelTree, value: Node) -> bool:
    """``t & 1`` or ``t % 2``, possibly of a quotient, of the variable of a loop around."""
    if value.type != "binary_expression":
        return False
    constant = literal(tree, field(value, "right"))
    if (operator(tree, value), constant) not in (("&", 1), ("%", 2)):
        return False
    names = {tree.text(n) for n in tree.nodes("identifier", within=field(value, "left"))}
    around = {a.id for a in tree.ancestors(value)}
    return any(loop.variable in names for loop in loops(tree) if loop.node.id in around)
