"""Where the sizes of a problem file are written, found in its syntax tree."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# Words in the names of integers that are no extents, or whose change alters what is computed.
_NO_SIZE_TEXT = """
    add alpha avgpool axes axis beta beta1 beta2 blocks clamp constant dilation dilations divide
    divisor dropout eps epsilon expansion exponent factor gamma group groups heads iterations
    kernel kernels layers margin max maxpool min momentum multiplier multiply pad padding pool
    ratio reduction repeats scale scaling seed slope smoothing stages steps stride strides
    subtract temperature threshold value values window
"""
NO_SIZE = frozenset(_NO_SIZE_TEXT.split())


def words(name: str) -> frozenset[str]:
    """The parts of a name, in lower case, without digits and subscripts."""
    base = name.split("[", maxsplit=1)[0]
    return frozenset(word for word in re.split(r"[_\d]+", base.lower()) if word)


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a lever is written: bytes ``[start, end)`` of the source.

    For ``a = b = 8`` the span is the whole statement and ``chain`` holds all its names.
    """

    name: str
    value: int
    start: int
    end: int
    chain: tuple[str, ...] = ()


def module_slots(tree: ast.Module, source: str) -> list[Slot]:
    """The integers assigned at module level, in file order."""
    span = _spans(source)
    last: dict[str, list[Slot]] = {}
    for node in tree.body:
        if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets: list[ast.expr] = [node.target]
        elif isinstance(node, ast.Assign):
            targets = node.targets
        else:
            continue
        # Only a name's last assignment sets what the functions will see.
        names = [part.id for t in targets for part in ast.walk(t) if isinstance(part, ast.Name)]
        last.update((name, []) for name in names)
        if isinstance(node, ast.AugAssign) or node.value is None:
            continue
        if len(targets) > 1:
            value = _fold(node.value)
            if value is not None and len(names) == len(targets):
                for name in names:
                    last[name] = [Slot(name, value, *span(node), tuple(names))]
            continue
        for name, part in _parts(targets[0], node.value):
            value = _fold(part)
            if value is not None:
                last[name.split("[", maxsplit=1)[0]].append(Slot(name, value, *span(part)))
    return sorted((slot for slots in last.values() for slot in slots), key=lambda s: s.start)


def _spans(source: str) -> Callable[[ast.expr | ast.stmt], tuple[int, int]]:
    """Maps a node to the bytes of ``source`` it stands in."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )

    return span


def _parts(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
            # [64] * 16: the element is the lever, whatever the number of copies.
            value = value.left if isinstance(value.left, (ast.Tuple, ast.List)) else value
        if isinstance(value, (ast.Tuple, ast.List)):
            for index, element in enumerate(value.elts):
                yield f"{target.id}[{index}]", element
        else:
            yield target.id, value
    elif (
        isinstance(target, ast.Tuple)
        and isinstance(value, ast.Tuple)
        and len(target.elts) == len(value.elts)
    ):
        for name, element in zip(target.elts, value.elts, strict=True):
            if isinstance(name, ast.Name):
                yield name.id, element


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def _fold(node: ast.expr) -> int | None:
    """The value of an integer expression without names, else None."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.BinOp):
        left, right = _fold(node.left), _fold(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Pow):
            return left**right if 0 <= right <= 64 and abs(left) <= 64 else None
        if isinstance(node.op, ast.FloorDiv):
            return left // right if right else None
        function = _OPERATORS.get(type(node.op))
        return function(left, right) if function else None
    return None
