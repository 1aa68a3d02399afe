"""Which value is the same in all lanes, warps or threads of a block.

``if (lane == 0)`` before a store chooses one of many threads. Where they all hold the value, as
after a butterfly of ``__shfl_xor_sync`` or when it is read from shared memory, another choice
changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.bounds import only_statement
from kernelassay.mutation.extents import bare, extents
from kernelassay.mutation.nodes import callee, field, operator
from kernelassay.mutation.tree import KernelTree

_LANE = re.compile(r"threadIdx\.x\)?(%\(?(32|WARP\w*|warpSize)\b|&31\b)")
_WARP = re.compile(r"threadIdx\.x\)?(/\(?(32|WARP\w*|warpSize)\b|>>5\b)")
_DEPTH = 6


def selected_by(tree: KernelTree, test: Node) -> str:
    """``lane``, ``warp`` or ``thread``: what an equality test with a constant chooses, else ""."""
    if test.type != "binary_expression" or operator(tree, test) not in ("==", "!="):
        return ""
    text = extents(tree).expand(field(test, "left")).strip("()")
    if _LANE.search(text):
        return "lane"
    if _WARP.search(text):
        return "warp"
    return "thread" if text == "threadIdx.x" else ""


def interchangeable(tree: KernelTree, test: Node, *, several: bool = False) -> bool:
    """Whether the threads that ``test`` does not choose would do the same as those it does.

    ``test`` is the whole condition of an ``if`` without ``else``, or of an early return. With
    ``several`` many threads do it at once, which is no matter only if none changes what it reads.
    """
    holder = tree.enclosing(test, "if_statement")
    kind = selected_by(tree, test)
    if holder is None or not kind or holder.child_by_field_name("alternative") is not None:
        return False
    condition = field(holder, "condition").child_by_field_name("value")
    if condition is None or bare(condition).id != test.id:
        return False
    body = field(holder, "consequence")
    effects: list[Node] | None
    if only_statement(body).type == "return_statement":
        effects = list(_effects_after(tree, holder))
    else:
        effects = list(tree.nodes("assignment_expression", "update_expression", within=body))
    if several and _updates_in_place(tree, effects, holder):
        return False
    return bool(effects) and all(_is_same(tree, e, kind, holder) for e in effects)


def _updates_in_place(tree: KernelTree, effects: list[Node], holder: Node) -> bool:
    """Whether a shared array that is written is read as well."""
    written = {
        tree.text(field(bare(field(e, "left")), "argument"))
        for e in effects
        if e.type == "assignment_expression"
        and bare(field(e, "left")).type == "subscript_expression"
    }
    reads = [
        tree.text(field(node, "argument"))
        for node in tree.nodes("subscript_expression", within=field(holder, "consequence"))
    ]
    return any(reads.count(name) > 1 for name in written)


def _effects_after(tree: KernelTree, holder: Node) -> Iterator[Node]:
    for node in tree.nodes(
        "assignment_expression", "update_expression", within=tree.function(holder)
    ):
        if node.start_byte > holder.end_byte:
            yield node


def _is_same(tree: KernelTree, effect: Node, kind: str, holder: Node) -> bool:
    """Whether an assignment leaves the same behind whichever thread makes it."""
    if effect.type != "assignment_expression" or operator(tree, effect) != "=":
        return _is_local_to(tree, effect, holder)
    target = bare(field(effect, "left"))
    if target.type != "subscript_expression" and not _is_shared(tree, target):
        return _is_local_to(tree, effect, holder)
    if kind == "warp":
        return _ignores_warp(tree, effect, holder)
    parts = [field(effect, "right")]
    if target.type == "subscript_expression":
        parts.append(field(target, "indices"))
    return all(_uniform(tree, part, kind, effect.start_byte, _DEPTH) for part in parts)


def _is_shared(tree: KernelTree, target: Node) -> bool:
    declared = tree.declared(target) if target.type == "identifier" else None
    return declared is not None and "__shared__" in declared.type_text


def _is_local_to(tree: KernelTree, effect: Node, holder: Node) -> bool:
    """Whether a changed variable is set anew in the ``if`` and not looked at after it."""
    target = bare(field(effect, "left" if effect.type == "assignment_expression" else "argument"))
    if target.type != "identifier":
        return False
    name = tree.text(target)
    uses = [
        n for n in tree.nodes("identifier", within=tree.function(holder)) if tree.text(n) == name
    ]
    if any(use.start_byte >= holder.end_byte for use in uses):
        return False
    inside = [n for n in uses if holder.start_byte <= n.start_byte < holder.end_byte]
    first = tree.enclosing(inside[0], "assignment_expression", "declaration")
    if first is None:
        return False
    if first.type == "declaration":
        return True
    return operator(tree, first) == "=" and field(first, "left").id == inside[0].id


def _ignores_warp(tree: KernelTree, effect: Node, holder: Node) -> bool:
    """Whether nothing in the chosen warp's statements depends on which warp it is."""
    known = extents(tree)
    for name in tree.nodes("identifier", "field_expression", within=field(holder, "consequence")):
        text = known.expand(name)
        if "threadIdx" in _LANE.sub("", text) and name.type == "field_expression":
            around = tree.parent(name)
            if around is None or not _LANE.search(known.expand(around)):
                return False
        elif (
            name.type == "identifier" and "threadIdx" in _LANE.sub("", text) and text != "threadIdx"
        ):
            return False
    return True


# -- values -------------------------------------------------------------------------------------


def _uniform(tree: KernelTree, node: Node, kind: str, at: int, depth: int) -> bool:
    """Whether an expression has one value for all lanes (``kind`` lane) or threads of a block."""
    if depth == 0:
        return False
    text = extents(tree).expand(node)
    if kind == "lane":
        text = _WARP.sub("", text)
    if "threadIdx" in text or "__shfl" in text:
        return False
    return all(
        _is_uniform_name(tree, name, kind, at, depth)
        for name in tree.nodes("identifier", within=node)
    )


def _is_uniform_name(tree: KernelTree, name: Node, kind: str, at: int, depth: int) -> bool:
    declared = tree.declared(name)
    if declared is None:
        helper = next((f for f in tree.device_functions if tree.name(f) == tree.text(name)), None)
        return helper is None or (kind == "thread" and _returns_uniform(tree, helper))
    if "__shared__" in declared.type_text:
        return True  # one for the block; its index is looked at by itself
    changes = _changes(tree, name, at)
    if changes:
        return _settles(tree, changes[-1], kind, depth)
    if declared.node.type == "parameter_declaration":
        function = tree.function(name)
        return any(function.id == kernel.id for kernel in tree.kernels)
    value = declared.value
    return value is not None and _uniform(tree, value, kind, at, depth - 1)


def _changes(tree: KernelTree, name: Node, at: int) -> list[Node]:
    """The assignments to a variable ahead of a place, in source order."""
    declared = tree.declared(name)
    found = []
    for node in tree.nodes("assignment_expression", within=tree.function(name)):
        target = bare(field(node, "left"))
        if target.type != "identifier" or node.start_byte >= at:
            continue
        other = tree.declared(target)
        if other is not None and declared is not None and other.start == declared.start:
            found.append(node)
    return found


def _settles(tree: KernelTree, change: Node, kind: str, depth: int) -> bool:
    """Whether the last change of a variable makes it the same everywhere."""
    loop = tree.enclosing(change, "for_statement")
    if loop is not None and "__shfl_xor_sync" in tree.text(loop):
        return kind == "lane"
    value = field(change, "right")
    if value.type == "call_expression" and operator(tree, change) == "=":
        helper = next(
            (f for f in tree.device_functions if tree.name(f) == callee(tree, value)), None
        )
        return helper is not None and kind == "thread" and _returns_uniform(tree, helper)
    if loop is not None:
        header = tree.span(loop.start_byte, field(loop, "body").start_byte)
        if "threadIdx" in header:
            return False
    return _uniform(tree, value, kind, change.start_byte, depth - 1)


def _returns_uniform(tree: KernelTree, helper: Node) -> bool:
    """Whether a helper returns what it reads from shared memory, after its last barrier."""
    text = tree.text(helper)
    if "__shared__" not in text or "__syncthreads" not in text:
        return False
    last = helper.start_byte + len(text[: text.rindex("__syncthreads")].encode())
    returned = [n for n in tree.nodes("return_statement", within=helper) if n.start_byte > last]
    if len(returned) != 1:
        return False
    for name in tree.nodes("identifier", within=returned[0]):
        declared = tree.declared(name)
        fresh = declared is not None and declared.start > last
        shared = declared is not None and "__shared__" in declared.type_text
        if not fresh and not shared:
            return False
    return "threadIdx" not in extents(tree).expand(returned[0])
