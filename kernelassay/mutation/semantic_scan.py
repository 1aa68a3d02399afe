"""Semantic faults of prefix scans: inclusive or exclusive, forward or reverse."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from tree_sitter import Node

from kernelassay.mutation.examples import ROWS, example
from kernelassay.mutation.match import (
    LOOPS,
    Store,
    atom,
    binary,
    declared_name,
    loads,
    same,
    stores,
    strip,
    subscript,
)
from kernelassay.mutation.nodes import calls, field, names_in, operator
from kernelassay.mutation.rule import Edit, Mutation, Rule
from kernelassay.mutation.semantic_reduction import reversed_loop
from kernelassay.mutation.tree import KernelTree, mutation, replace


def _scan_kind(tree: KernelTree) -> Iterator[Mutation]:
    """Swap the update of a running value and the store that follows it, or precedes it."""
    for block in tree.nodes("compound_statement"):
        if tree.enclosing(block, *LOOPS) is None:
            continue
        statements = list(block.named_children)
        for first, second in pairwise(statements):
            if _is_scan_step(tree, first, second) or _is_scan_step(tree, second, first):
                yield mutation(replace(first, tree.text(second)), replace(second, tree.text(first)))
    for store, own in _parallel_scans(tree):
        sides = binary(tree, store.value, "+", "*")
        if sides:
            inverse = "-" if operator(tree, strip(store.value)) == "+" else "/"
            text = f"{tree.text(store.value)} {inverse} {tree.text(own)}"
            yield mutation(replace(store.value, text))


def _is_scan_step(tree: KernelTree, update: Node, store: Node) -> bool:
    """Whether ``acc op= e;`` and ``out[i] = acc;`` stand in these two statements."""
    if update.type != "expression_statement" or store.type != "expression_statement":
        return False
    stepped, stored = strip(update.named_children[0]), strip(store.named_children[0])
    if stepped.type != "assignment_expression" or stored.type != "assignment_expression":
        return False
    target = field(stepped, "left")
    if target.type != "identifier" or all(s.node.id != stored.id for s in stores(tree)):
        return False
    running = tree.text(target)
    is_running = operator(tree, stepped) in ("+=", "*=") or running in names_in(
        tree, field(stepped, "right")
    )
    return is_running and running in names_in(tree, field(stored, "right"))


def _scan_reverse(tree: KernelTree) -> Iterator[Mutation]:
    for loop in tree.nodes("for_statement"):
        body = field(loop, "body")
        statements = list(body.named_children) if body.type == "compound_statement" else []
        pairs = pairwise(statements)
        if any(_is_scan_step(tree, a, b) or _is_scan_step(tree, b, a) for a, b in pairs):
            edits = reversed_loop(tree, loop)
            if edits:
                yield mutation(*edits)
    for store, own in _parallel_scans(tree):
        mirrored = _mirrored(tree, store, own)
        if mirrored:
            yield mutation(*mirrored)


def _parallel_scans(tree: KernelTree) -> Iterator[tuple[Store, Node]]:
    """Stores of kernels that scan by shuffles, with the load of the element they replace."""
    for store in stores(tree):
        function, place = tree.function(store.node), subscript(tree, store.target)
        helpers = [f for f in tree.device_functions if "scan" in tree.name(f)]
        shuffles = any(calls(tree, "__shfl_up_sync", within=function))
        if place is None or not (shuffles or _calls_any(tree, function, helpers)):
            continue
        for load in loads(tree, within=function):
            index = subscript(tree, load)
            if index is not None and same(tree, index, place):
                yield store, load
                break


def _calls_any(tree: KernelTree, function: Node, helpers: list[Node]) -> bool:
    return any(calls(tree, *(tree.name(h) for h in helpers), within=function))


def _mirrored(tree: KernelTree, store: Store, own: Node) -> list[Edit]:
    """The edits that count an index down from the end: ``int i = e`` with guards ``i < n``."""
    function, place = tree.function(store.node), subscript(tree, own)
    names = names_in(tree, place) if place is not None else set()
    for declarator in tree.nodes("init_declarator", within=function):
        name = declared_name(tree, declarator)
        guards = [
            (node, sides)
            for node in tree.nodes("binary_expression", within=function)
            if (sides := binary(tree, node, "<")) and tree.text(sides[0]) == name
        ]
        if name not in names or not guards or declarator.end_byte > own.start_byte:
            continue
        if tree.enclosing(declarator, "for_statement") is None or _is_header(tree, declarator):
            continue
        start, size = field(declarator, "value"), guards[0][1][1]
        mirrored = replace(start, f"{atom(tree, size)} - 1 - {atom(tree, start)}")
        return [mirrored, *(replace(node, f"{name} >= 0") for node, _ in guards)]
    return []


def _is_header(tree: KernelTree, declarator: Node) -> bool:
    loop = tree.enclosing(declarator, *LOOPS)
    initial = loop.child_by_field_name("initializer") if loop is not None else None
    return initial is not None and initial.start_byte <= declarator.start_byte < initial.end_byte


# -- the rules ----------

_DOWN = "int j = cols - 1; j >= 0; --j"
_example = partial(example, params=ROWS)


def _scan(first: str, second: str, loop: str = "int j = 0; j < cols; ++j") -> str:
    return f"    float run = 0.0f;\n    for ({loop}) {{\n        {first}\n        {second}\n    }}"


_TILED = """    float carry = 0.0f;
    for (int base = 0; base < cols; base += 32) {{
        int i = {index};
        float v = {guard} ? x[i] : 0.0f;
        v += __shfl_up_sync(~0u, v, 1);
        if ({guard}) y[i] = {value};
    }}"""


def _tiled(
    index: str = "base + threadIdx.x", guard: str = "i < cols", value: str = "carry + v"
) -> str:
    return _TILED.format(index=index, guard=guard, value=value)


SCAN_INCLUSIVE_EXCLUSIVE = Rule(
    "scan-inclusive-exclusive",
    "semantic",
    "the running value is stored before, not after, its update (or the reverse)",
    "an exclusive prefix sum where an inclusive one is asked for",
    _scan_kind,
    (
        _example(_scan("run += x[j];", "y[j] = run;"), _scan("y[j] = run;", "run += x[j];")),
        _example(_tiled(), _tiled(value="carry + v - x[i]")),
    ),
)
SCAN_REVERSE = Rule(
    "scan-reverse",
    "semantic",
    "a prefix scan runs from the other end",
    "the flip of a reversed cumulative sum forgotten, or left over",
    _scan_reverse,
    (
        _example(
            _scan("run += x[j];", "y[j] = run;"),
            _scan("run += x[j];", "y[j] = run;", loop=_DOWN),
        ),
        _example(_tiled(), _tiled("cols - 1 - (base + threadIdx.x)", "i >= 0")),
    ),
)
