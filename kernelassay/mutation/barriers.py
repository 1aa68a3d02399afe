"""Where the threads of a block or of a warp meet: intrinsics and groups of cooperative_groups."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.nodes import arguments, callee, field
from kernelassay.mutation.tree import KernelTree

_BLOCK_GROUPS = re.compile(
    r"\bthread_block\b\s*&?\s*(\w+)|\bauto\s*&?\s*(\w+)\s*=\s*(?:\w+\s*::\s*)*this_thread_block\b"
)
_TILES = re.compile(
    r"\bthread_block_tile\s*<[^;(){}]*?>\s*&?\s*(\w+)"
    r"|\bauto\s*&?\s*(\w+)\s*=\s*(?:\w+\s*::\s*)*tiled_partition\b"
)
_UNNAMED_BLOCK = re.compile(r"(?:\w+\s*::\s*)*this_thread_block\s*\(\s*\)")


def is_block_barrier(tree: KernelTree, call: Node) -> bool:
    """Whether a call is ``__syncthreads()``, or ``sync`` of a group that is the whole block."""
    if callee(tree, call) == "__syncthreads":
        return True
    group = _synchronised(tree, call)
    if group is None:
        return False
    return bool(_UNNAMED_BLOCK.fullmatch(group)) or group in _groups(tree, call, _BLOCK_GROUPS)


def is_warp_barrier(tree: KernelTree, call: Node) -> bool:
    """Whether a call is ``__syncwarp()``, or ``sync`` of a tile of a block."""
    if callee(tree, call) == "__syncwarp":
        return True
    group = _synchronised(tree, call)
    return group is not None and group in _groups(tree, call, _TILES)


def _synchronised(tree: KernelTree, call: Node) -> str | None:
    """The group of ``group.sync()`` or ``cg::sync(group)``."""
    function = field(call, "function")
    if function.type == "field_expression":
        method = tree.text(field(function, "field"))
        return tree.text(field(function, "argument")) if method == "sync" else None
    if tree.text(function).rpartition("::")[2].strip() == "sync" and len(arguments(call)) == 1:
        return tree.text(arguments(call)[0])
    return None


def _groups(tree: KernelTree, call: Node, pattern: re.Pattern[str]) -> Iterator[str]:
    text = tree.text(tree.function(call))
    return (name for match in pattern.finditer(text) for name in match.groups() if name)
