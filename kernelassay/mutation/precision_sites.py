"""Where the precision rules on storage look, and the sources of their examples."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.examples import kernel
from kernelassay.mutation.match import (
    Update,
    accumulators,
    declared_name,
    inputs,
    number,
    pointer_root,
    root_identifier,
    stores,
)
from kernelassay.mutation.nodes import field, operator
from kernelassay.mutation.rule import Example, Find, Rule
from kernelassay.mutation.tree import KernelTree


def stored_values(tree: KernelTree) -> Iterator[Node]:
    """The float or float4 values that kernels store to global memory, literals left out."""
    for store in stores(tree):
        is_wide = tree.base_type(store.target) == "float4"
        is_float = tree.kind(store.target) == "float" and tree.is_float(store.value)
        if (is_float or is_wide) and number(tree, store.value) is None:
            yield store.value


def operand_loads(tree: KernelTree) -> Iterator[Node]:
    """Reads of a float or a float4 from a pointer-to-const parameter, in source order."""
    for node in tree.nodes("subscript_expression", "pointer_expression"):
        parent = tree.parent(node)
        if parent is not None and parent.type == "pointer_expression":
            continue  # the operand of & or of *
        if node.type == "pointer_expression" and operator(tree, node) != "*":
            continue
        if tree.kind(node) != "float" and tree.base_type(node) != "float4":
            continue
        if tree.kind(node) == "pointer":
            continue
        if pointer_root(tree, node) in inputs(tree, tree.function(node)):
            yield node


def _declaration(tree: KernelTree, update: Update) -> Node | None:
    """The declaration of the variable that an update sums into."""
    for node in tree.nodes("declaration", within=tree.function(update.node)):
        for declarator in node.children_by_field_name("declarator"):
            if declared_name(tree, declarator) == update.name:
                return node
    return None


def accumulator_groups(tree: KernelTree) -> Iterator[tuple[Node | None, tuple[Update, ...]]]:
    """Accumulators declared together, with all their updates: they share one type."""
    found: dict[int, tuple[Node | None, list[Update]]] = {}
    for _, changes in accumulators(tree):
        declaration = _declaration(tree, changes[0])
        key = declaration.id if declaration is not None else changes[0].node.id
        found.setdefault(key, (declaration, []))[1].extend(changes)
    for declaration, changes_ in found.values():
        yield declaration, tuple(changes_)


def shared_arrays(tree: KernelTree) -> Iterator[tuple[str, list[Node]]]:
    """Each ``__shared__ float`` array with the values written to it, literals left out."""
    for function in (*tree.device_functions, *tree.kernels):
        for declaration in tree.nodes("declaration", within=function):
            words = tree.text(declaration).split()
            if "__shared__" not in words or "float" not in words:
                continue
            for declarator in declaration.children_by_field_name("declarator"):
                name = declared_name(tree, declarator)
                yield (
                    name,
                    [
                        value
                        for value in _written(tree, function, name)
                        if number(tree, value) is None
                    ],
                )


def _written(tree: KernelTree, function: Node, name: str) -> Iterator[Node]:
    for node in tree.nodes("assignment_expression", within=function):
        target = field(node, "left")
        reaches = root_identifier(tree, target) == name or pointer_root(tree, target) == name
        if reaches and tree.kind(target) == "float" and operator(tree, node) == "=":
            yield field(node, "right")


_COUNTS = re.compile(r"(\w+\.)?count\w*(\s*\+\s*(\w+\.)?count\w*)*")


def is_count(tree: KernelTree, value: Node) -> bool:
    """Whether a float holds a number of elements: whole, and in range of what a test can hold."""
    return _COUNTS.fullmatch(tree.text(value)) is not None


# -- examples ----------

_DOT = "const float* a, const float* b, float* y, int n"


def dot(
    update: str = "acc += a[k] * b[k]",
    declared: str = "float acc = 0.0f",
    value: str = "acc",
) -> str:
    """A kernel that sums the products of two vectors."""
    return kernel(
        f"    {declared};\n    for (int k = 0; k < n; ++k) {update};\n    y[blockIdx.x] = {value};",
        _DOT,
    )


def stored(value: str, *, before: str = "") -> str:
    """A kernel that stores an expression of one loaded ``v``."""
    return before + kernel(f"    const float v = x[threadIdx.x];\n    y[threadIdx.x] = {value};")


def of_store(before: str, *after: str) -> Example:
    """An example of two :func:`stored` kernels."""
    return Example(stored(before), tuple(map(stored, after)))


def precision_rule(id_: str, what: str, bug: str, find: Find, *examples: Example) -> Rule:
    """A rule of the family."""
    return Rule(id_, "precision", what, bug, find, examples)
