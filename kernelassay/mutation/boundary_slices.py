"""The boundary rule on empty and single-element slices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tree_sitter import Node

from kernelassay.mutation.bounds import loops
from kernelassay.mutation.examples import example
from kernelassay.mutation.extents import bare, extents, literal, wrap
from kernelassay.mutation.nodes import arguments, callee, field, operator, reads_memory
from kernelassay.mutation.rule import Mutation, Rule
from kernelassay.mutation.tree import KernelTree, mutation, replace


def _empty_slice_init(tree: KernelTree) -> Iterator[Mutation]:
    """One site of a source: a slice of one element shows each of them."""
    yield from islice(_small_slices(tree), 1)


def _small_slices(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("assignment_expression", "conditional_expression", "call_expression"):
        if node.type == "assignment_expression":
            size = _slice_size(tree, node)
            if size:
                value = field(node, "right")
                yield mutation(replace(value, f"{size} > 1 ? {wrap(tree, value)} : 0.0f"))
        elif node.type == "conditional_expression":
            then, otherwise = field(node, "consequence"), field(node, "alternative")
            right = bare(field(node, "condition")).child_by_field_name("right")
            if (
                literal(tree, right) in (0, 1)
                and "%" not in tree.text(field(node, "condition"))
                and _divides(tree, then)
                and not reads_memory(tree, otherwise)
            ):
                yield mutation(replace(node, wrap(tree, then)))
        elif callee(tree, node) == "max" and literal(tree, arguments(node)[-1]) == 1:
            yield mutation(replace(node, wrap(tree, arguments(node)[0])))


def _slice_size(tree: KernelTree, store: Node) -> str:
    """The extent of the slice that a stored result was reduced from, or ``""``.

    It bounds the first folding loop that ended before the store: a size parameter if there is
    such a loop, else a size computed from parameters.
    """
    function = tree.function(store)
    left = field(store, "left")
    stores = operator(tree, store) == "=" and left.type == "subscript_expression"
    if not stores or not tree.is_float(left) or not _writes_output(tree, function, left):
        return ""
    bounds = [
        bare(loop.test.bound)
        for loop in loops(tree)
        if loop.test is not None
        and not loop.geometric
        and function.start_byte < loop.node.start_byte
        and loop.node.end_byte <= store.start_byte
        and _accumulates(tree, loop.node)
    ]
    sizes = set(extents(tree).sizes(function))
    named = [tree.text(bound) for bound in bounds if tree.text(bound) in sizes]
    computed = [tree.text(bound) for bound in bounds if _is_top_level_extent(tree, bound)]
    return next(iter([*named, *computed]), "")


def _accumulates(tree: KernelTree, loop: Node) -> bool:
    """Whether a loop folds into a variable or register array from outside of it."""
    inner = {
        tree.text(field(declarator, "declarator"))
        for declarator in tree.nodes("init_declarator", within=loop)
    }
    function = tree.function(loop)
    for node in tree.nodes("assignment_expression", within=field(loop, "body")):
        target = field(node, "left")
        while target.type == "subscript_expression":
            target = field(target, "argument")
        name = tree.text(target)
        pointer = "*" in (tree.declared_type(function, name) or "")
        if target.type == "identifier" and name not in inner and not pointer:
            return True
    return False


def _is_top_level_extent(tree: KernelTree, name: Node) -> bool:
    """Whether a name is a fixed local of the function's outermost block, so visible below."""
    known = extents(tree)
    value = known.definition(name)
    if value is None or not known.fixed(name):
        return False
    declaration = tree.enclosing(value, "declaration")
    block = tree.parent(declaration) if declaration is not None else None
    return block is not None and block.id == field(tree.function(name), "body").id


def _divides(tree: KernelTree, node: Node) -> bool:
    return any(
        operator(tree, inner) == "/" for inner in tree.nodes("binary_expression", within=node)
    )


def _writes_output(tree: KernelTree, function: Node, target: Node) -> bool:
    base = tree.text(field(target, "argument"))
    return any(
        p.name == base and p.is_pointer and "const" not in p.type_text
        for p in tree.parameters(function)
    )


_SUM = "float s = 0.0f;\nfor (int j = 0; j < n; ++j) s += x[j];\n"


EMPTY_SLICE = Rule(
    "empty-slice-init",
    "boundary",
    "a reduced result replaced by 0 for slices of one element; the case for none removed",
    "the special case for an empty or single-element slice is wrong or missing",
    _empty_slice_init,
    (
        example(f"{_SUM}y[0] = s / n;", f"{_SUM}y[0] = n > 1 ? (s / n) : 0.0f;"),
        example(
            "int k = threadIdx.x;\nfloat v = k > 0 ? x[0] / k : 0.0f;",
            "int k = threadIdx.x;\nfloat v = (x[0] / k);",
        ),
    ),
)
