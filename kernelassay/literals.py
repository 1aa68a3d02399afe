"""Integers written inside the classes and functions of a problem file, by what they seem to be.

Shrinking edits them as a last resort: a network whose channel counts stand in its constructor has
no other sizes. A literal is named by its place, ``@<line>:<column>`` of the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelassay.slots import words as name_words

SIZE, SPATIAL, FACTOR, DEPTH = "size", "spatial", "factor", "depth"

SMALLEST_LITERAL = 16  # integers below are rather kernel sizes and factors
_SMALLEST_MULTIPLE = 32  # features * 16 has a factor, 64 * expansion an extent
_SMALLEST_POOL = 5
SMALLEST_IMAGE = 24
_IMAGE_POSITION = 2  # of torch.rand(batch, channels, height, width)

DEPTH_WORDS = frozenset({"layers", "blocks", "repeats", "depth", "depths"})
IMAGE_WORDS = frozenset({"image", "img", "resolution"})
# stages_out_channels is an extent, whatever its other words.
_WINDOW_WORDS = frozenset({"window", "windows"})
_EXTENT_WORDS = frozenset({"channels", "features", "widths", "planes"})


@dataclass(frozen=True, slots=True)
class Literal:
    """One integer literal: ``kind`` says how it may be scaled.

    ``size`` is an extent; ``spatial`` is an image extent; ``factor`` is a small integer that
    follows the image, in a product with a size (the 7s of ``512 * 7 * 7``) or as a window
    of attention or of a final average pool; ``depth`` counts layers.
    """

    name: str
    value: int
    kind: str
    start: int
    end: int


def find_literals(tree: ast.Module, source: str, no_size: frozenset[str]) -> tuple[Literal, ...]:
    """The literals of all functions and classes of a module that may be scaled, in file order.

    ``no_size`` holds the words that mark a name as no extent. What is compared, indexed by, or
    computed with other than in a product is left alone.
    """
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[str, Literal] = {}
    for top in tree.body:
        if not isinstance(top, (ast.ClassDef, ast.FunctionDef)):
            continue
        draws = isinstance(top, ast.FunctionDef) and top.name == "get_inputs"
        for path in _paths(top, (top,)):
            node = path[-1]
            assert isinstance(node, ast.Constant) and node.end_col_offset is not None
            kind = _kind(path, no_size, draws)
            if kind:
                start = starts[node.lineno - 1] + node.col_offset
                end = starts[node.lineno - 1] + node.end_col_offset
                name = f"@{node.lineno}:{node.col_offset + 1}"
                found[name] = Literal(name, int(str(node.value)), kind, start, end)
    return tuple(sorted(found.values(), key=lambda literal: literal.start))


def _paths(node: ast.AST, path: tuple[ast.AST, ...]) -> Iterator[tuple[ast.AST, ...]]:
    """The ways from ``node`` down to each plain integer."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Constant) and type(child.value) is int:
            yield (*path, child)
        yield from _paths(child, (*path, child))


def _kind(path: Sequence[ast.AST], no_size: frozenset[str], draws: bool) -> str:
    """The kind of the integer at the end of ``path``, or an empty string."""
    leaf = path[-1]
    assert isinstance(leaf, ast.Constant) and isinstance(leaf.value, int)
    value = leaf.value
    at = len(path) - 2
    largest, scaled = value, False
    while isinstance(path[at], ast.BinOp):
        product = path[at]
        assert isinstance(product, ast.BinOp)
        if not isinstance(product.op, ast.Mult):
            return ""
        other = product.left if product.right is path[at + 1] else product.right
        constants = [n.value for n in ast.walk(other) if isinstance(n, ast.Constant)]
        if any(isinstance(n, (ast.Call, ast.Subscript)) for n in ast.walk(other)):
            return ""
        scaled = scaled or any(isinstance(n, (ast.Name, ast.Attribute)) for n in ast.walk(other))
        largest = max([largest, *(c for c in constants if type(c) is int)])
        at -= 1
    listed = at
    while isinstance(path[at], (ast.List, ast.Tuple)):
        at -= 1
    name = _name(path, at)
    if name is None:
        return ""
    words = name_words(name)
    if words & DEPTH_WORDS:
        return DEPTH if value > 2 and not scaled else ""
    if words & _WINDOW_WORDS and value >= _SMALLEST_POOL:
        return FACTOR
    if words & no_size and not words & _EXTENT_WORDS:
        return ""
    in_product = isinstance(path[len(path) - 2], ast.BinOp)
    if 2 <= value < SMALLEST_LITERAL:
        follows = in_product and not scaled and largest >= SMALLEST_LITERAL
        return FACTOR if follows or (value >= _SMALLEST_POOL and _is_average(path[at])) else ""
    if value < (_SMALLEST_MULTIPLE if scaled else SMALLEST_LITERAL):
        return ""
    if value >= SMALLEST_IMAGE and not in_product:
        if words & IMAGE_WORDS:
            return SPATIAL
        if draws and _position(path, listed) >= _IMAGE_POSITION:
            return SPATIAL
    return SIZE


def _is_average(node: ast.AST) -> bool:
    function = getattr(node, "func", None)
    name = getattr(function, "attr", getattr(function, "id", ""))
    return name.lower().replace("_", "").startswith("avgpool")


def _name(path: Sequence[ast.AST], at: int) -> str | None:
    """What the value at ``path[at + 1]`` is called; "" if it has no name, None if it is no size."""
    parent, child = path[at], path[at + 1]
    if isinstance(parent, ast.keyword):
        return parent.arg or ""
    if isinstance(parent, ast.Call):
        # int(32 * alpha) is named by what takes it.
        if isinstance(parent.func, ast.Name) and parent.func.id in ("int", "round"):
            return _name(path, at - 1)
        return "" if child in parent.args else None
    if isinstance(parent, ast.arguments):
        return _parameter(parent, child)
    if isinstance(parent, (ast.Assign, ast.AnnAssign)):
        target = parent.targets[0] if isinstance(parent, ast.Assign) else parent.target
        return getattr(target, "id", getattr(target, "attr", ""))
    return "" if isinstance(parent, (ast.Return, ast.List, ast.Tuple)) else None


def _parameter(arguments: ast.arguments, default: ast.AST) -> str:
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = positional[len(positional) - len(arguments.defaults) :]
    pairs = [*zip(with_default, arguments.defaults, strict=True)]
    pairs += [
        (argument, value)
        for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if value is not None
    ]
    return next((argument.arg for argument, value in pairs if value is default), "")


def _position(path: Sequence[ast.AST], at: int) -> int:
    """The index of ``path[at + 1]`` among the arguments or elements of ``path[at]``."""
    parent, child = path[at], path[at + 1]
    values: Sequence[ast.AST] = getattr(parent, "args", getattr(parent, "elts", ()))
    return list(values).index(child) if child in values else -1
