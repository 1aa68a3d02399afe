"""Boundary rules on padding tests, window clips and fallback values."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.boundary_tails import is_tail_guard, vector_width
from kernelassay.mutation.bounds import (
    BoundTest,
    Guard,
    Halo,
    bound_test,
    guards,
    halos,
    is_clip,
    only_statement,
)
from kernelassay.mutation.examples import example
from kernelassay.mutation.extents import bare, extents, literal, shifted, wrap
from kernelassay.mutation.nodes import arguments, callee, field, operator, reads_memory
from kernelassay.mutation.rewrites import moved, without_operand, without_statement
from kernelassay.mutation.rule import Edit, Example, Find, Mutation, Rule
from kernelassay.mutation.tree import KernelTree, mutation, replace

_INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
_PLANE = "const float* x, float* y, int H, int W, int total"
_HALO = "int h = threadIdx.y - 1, w = threadIdx.x - 1;"


# -- padding tests ------------------------------------------------------------------------------


def _signed(tree: KernelTree, node: Node) -> str:
    return tree.text(bare(node))


def _halo_drop_lower(tree: KernelTree) -> Iterator[Mutation]:
    for halo in halos(tree):
        if halo.unsigned:
            upper = halo.upper
            text = f"{_signed(tree, upper.index)} {upper.operator} {_signed(tree, upper.bound)}"
            yield mutation(replace(upper.node, text))
        elif (edit := without_operand(tree, halo.lower.node)) is not None:
            yield mutation(edit)


def _halo_drop_upper(tree: KernelTree) -> Iterator[Mutation]:
    for halo in halos(tree):
        if halo.unsigned:
            symbol = ">=" if halo.upper.inside else "<"
            text = f"{_signed(tree, halo.upper.index)} {symbol} 0"
            yield mutation(replace(halo.upper.node, text))
        elif (edit := without_operand(tree, halo.upper.node)) is not None:
            yield mutation(edit)


def _halo_off_by_one(tree: KernelTree) -> Iterator[Mutation]:
    for halo in halos(tree):
        for test in (halo.upper,) if halo.unsigned else (halo.lower, halo.upper):
            for loose in (True, False):
                yield mutation(replace(test.node, moved(tree, test, loose=loose)))


def _halo_clamp(tree: KernelTree) -> Iterator[Mutation]:
    by_guard: dict[int, list[Halo]] = {}
    for halo in halos(tree):
        by_guard.setdefault(halo.guard.owner.id, []).append(halo)
    for group in by_guard.values():
        edits = [edit for halo in group for edit in _clamped(tree, halo)]
        if edits:
            yield mutation(*edits)


def _clamped(tree: KernelTree, halo: Halo) -> list[Edit]:
    """The edits for one padding test: the test gone, its coordinate clamped where it is read."""
    index = bare(halo.upper.index)
    if index.type != "identifier":
        return []
    name = tree.text(index)
    reads: list[Node] = []
    for region in _guarded_region(tree, halo.guard):
        for node in tree.nodes("identifier", within=region):
            if tree.text(node) != name:
                continue
            if _is_written(tree, node):
                return []
            reads.append(node)
    if not reads:
        return []
    last = _extreme(tree, halo.upper)
    first = "0" if halo.unsigned else _extreme(tree, halo.lower)
    text = f"({name} < {first} ? {first} : {name} > {last} ? {last} : {name})"
    passed = "true" if halo.upper.inside else "false"
    tests = {test.node.id: test.node for test in (halo.lower, halo.upper)}
    return [replace(node, passed) for node in tests.values()] + [replace(r, text) for r in reads]


def _is_written(tree: KernelTree, name: Node) -> bool:
    outer = tree.parent(name)
    if outer is None or outer.type not in (
        "update_expression",
        "init_declarator",
        "assignment_expression",
    ):
        return False
    return outer.type == "update_expression" or outer.children[0].id == name.id


def _extreme(tree: KernelTree, test: BoundTest) -> str:
    """The outermost index that the test lets through."""
    inclusive = (test.operator in ("<=", ">=")) == test.inside
    if inclusive:
        return tree.text(bare(test.bound))
    return shifted(tree, bare(test.bound), -1 if test.upper else 1)


def _guarded_region(tree: KernelTree, guard: Guard) -> list[Node]:
    """The nodes that run only where the guard let them."""
    owner = guard.owner
    if owner.type == "conditional_expression" or (owner.type == "if_statement" and not guard.exits):
        return [field(owner, "consequence")]
    statement = owner if owner.type == "if_statement" else tree.parent(owner)
    block = tree.parent(statement) if statement is not None else None
    if statement is None or block is None or owner.type == "return_statement":
        return []
    return [node for node in block.named_children if node.start_byte >= statement.end_byte]


# -- clips, fallbacks, empty slices -------------------------------------------------------------


def _window_clip_off(tree: KernelTree) -> Iterator[Mutation]:
    known = extents(tree)
    for node in tree.nodes(
        "call_expression", "conditional_expression", "if_statement", "while_statement"
    ):
        if node.type == "call_expression":
            given = arguments(node)
            if callee(tree, node) not in ("max", "min") or len(given) != 2:
                continue
            if not all(tree.kind(a) in ("int", "long", "unknown") for a in given):
                continue
            varying = [a for a in given if not known.fixed(a)]
            fixed = [a for a in given if known.fixed(a)]
            if vector_width(tree, node) is not None:
                continue
            if len(varying) == 1 and _is_edge(tree, callee(tree, node), fixed[0]):
                yield mutation(replace(node, wrap(tree, varying[0])))
        elif node.type == "conditional_expression" and is_clip(tree, node):
            chosen = [field(node, f) for f in ("consequence", "alternative")]
            varying = [a for a in chosen if not known.fixed(a)]
            if len(varying) == 1:
                yield mutation(replace(node, wrap(tree, varying[0])))
        elif node.type.endswith("_statement") and _clips(tree, node):
            yield mutation(without_statement(tree, node))


def _is_edge(tree: KernelTree, function: str, node: Node) -> bool:
    """Whether a fixed operand is an image's edge: 0 below, an extent above."""
    value = literal(tree, node)
    return value == 0 if function == "max" else value is None


def _clips(tree: KernelTree, node: Node) -> bool:
    """Whether a statement is ``if (i < 0) i = 0;`` or ``while (i < 0) i += step;``."""
    test = bound_test(tree, bare(field(field(node, "condition"), "value")), inside=True)
    body = only_statement(field(node, "consequence" if node.type == "if_statement" else "body"))
    if test is None or body.type != "expression_statement" or not body.named_children:
        return False
    assigned = body.named_children[0]
    if assigned.type != "assignment_expression":
        return False
    symbol = "=" if node.type == "if_statement" else "+="
    same = tree.text(field(assigned, "left")) == tree.text(bare(test.index))
    fixed = extents(tree).fixed(field(assigned, "right"))
    return same and fixed and operator(tree, assigned) == symbol


def _tile_edge_unguarded(tree: KernelTree) -> Iterator[Mutation]:
    for guard in guards(tree):
        owner = guard.owner
        if owner.type not in ("conditional_expression", "if_statement") or not guard.pure:
            continue
        if is_tail_guard(tree, guard):
            continue
        then, otherwise = (owner.child_by_field_name(f) for f in ("consequence", "alternative"))
        if then is None or otherwise is None:
            continue
        if owner.type == "conditional_expression":
            if reads_memory(tree, then) and not reads_memory(tree, otherwise):
                yield mutation(replace(owner, wrap(tree, then)))
        elif _stores_constant(tree, otherwise):
            yield mutation(replace(owner, tree.text(then)))


def _stores_constant(tree: KernelTree, alternative: Node) -> bool:
    statement = only_statement(alternative.named_children[0])
    if statement.type != "expression_statement" or not statement.named_children:
        return False
    stored = statement.named_children[0]
    return stored.type == "assignment_expression" and not reads_memory(tree, field(stored, "right"))


def _rule(id_: str, what: str, bug: str, find: Find, *examples: Example) -> Rule:
    return Rule(id_, "boundary", what, bug, find, examples)


_PADDED = f"{_HALO}\nfloat v = h >= 0 && h < H ? x[h * W + w] : 0.0f;\ny[w] = v;"
_POOL = (
    "int start = threadIdx.x - 1;\nint from = max(start, 0), to = min(start + 3, n);\n"
    "for (int i = from; i < to; ++i) y[i] = x[i];"
)

HALO_RULES = (
    _rule(
        "halo-drop-lower",
        "a padding test loses its lower side",
        "the padding before the first row or column reads other data",
        _halo_drop_lower,
        example(_PADDED, _PADDED.replace("h >= 0 && h < H", "h < H"), params=_PLANE),
        example(
            f"{_HALO}\nif ((unsigned)h < (unsigned)H) y[w] = x[h];",
            f"{_HALO}\nif (h < H) y[w] = x[h];",
            params=_PLANE,
        ),
    ),
    _rule(
        "halo-drop-upper",
        "a padding test loses its upper side",
        "the padding after the last row or column reads other data",
        _halo_drop_upper,
        example(_PADDED, _PADDED.replace("h >= 0 && h < H", "h >= 0"), params=_PLANE),
        example(
            f"{_HALO}\nif (h < 0 || h >= H) return;\ny[w] = x[h];",
            f"{_HALO}\nif (h < 0) return;\ny[w] = x[h];",
            params=_PLANE,
        ),
    ),
    _rule(
        "halo-off-by-one",
        "one side of a padding test moved by one",
        "a border row or column is taken for padding, or padding for data",
        _halo_off_by_one,
        example(
            _PADDED,
            _PADDED.replace("h >= 0", "h >= -1"),
            _PADDED.replace("h >= 0", "h > 0"),
            _PADDED.replace("h < H", "h <= H"),
            _PADDED.replace("h < H", "h < H - 1"),
            params=_PLANE,
        ),
    ),
    _rule(
        "halo-clamp",
        "skip-outside to clamp-to-edge",
        "zero padding implemented as replicate padding",
        _halo_clamp,
        example(
            _PADDED,
            _PADDED.replace("h >= 0 && h < H", "true && true").replace(
                "x[h *", "x[(h < 0 ? 0 : h > H - 1 ? H - 1 : h) *"
            ),
            params=_PLANE,
        ),
        example(
            f"{_HALO}\nif (h < 0 || h >= H) return;\ny[w] = x[h];",
            f"{_HALO}\nif (false || false) return;\ny[w] = x[(h < 0 ? 0 : h > H - 1 ? H - 1 : h)];",
            params=_PLANE,
        ),
    ),
)

WINDOW_CLIP = _rule(
    "window-clip-off",
    "a window's clip to the image removed on one side",
    "a pooling window at the border reads outside the image",
    _window_clip_off,
    example(
        _POOL,
        _POOL.replace("max(start, 0)", "start"),
        _POOL.replace("min(start + 3, n)", "(start + 3)"),
    ),
    example(
        "int i = threadIdx.x - 4;\nwhile (i < 0) i += 2;\ny[i] = x[i];",
        "int i = threadIdx.x - 4;\n\ny[i] = x[i];",
    ),
    example(
        "int start = threadIdx.x - 1;\nif (start < 0) start = 0;\ny[start] = x[start];",
        "int start = threadIdx.x - 1;\n\ny[start] = x[start];",
    ),
)
TILE_EDGE = _rule(
    "tile-edge-unguarded",
    "a load's fallback value removed, with its test",
    "the last tile is filled from past the edge",
    _tile_edge_unguarded,
    example(
        f"__shared__ float s[32];\n{_INDEX}\ns[threadIdx.x] = i < n ? x[i] : 0.0f;",
        f"__shared__ float s[32];\n{_INDEX}\ns[threadIdx.x] = x[i];",
    ),
    example(
        f"__shared__ float s[32];\n{_INDEX}\nif (i < n) s[0] = x[i]; else s[0] = 0.0f;",
        f"__shared__ float s[32];\n{_INDEX}\ns[0] = x[i];",
    ),
)
