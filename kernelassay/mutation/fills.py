"""Values that stand in for elements past the edge, and whether any result sees them.

A tile of a product is filled up with zeros. The fill of one operand alone is immaterial: the
other operand's zero meets it, or the output it goes into is not stored.
"""

from __future__ import annotations

from tree_sitter import Node

from kernelassay.mutation.bounds import BoundTest, bound_test, flatten, guards, loops
from kernelassay.mutation.extents import bare, compact
from kernelassay.mutation.geometry import reached
from kernelassay.mutation.layout import factors
from kernelassay.mutation.nodes import field, operator
from kernelassay.mutation.sites import number, storage
from kernelassay.mutation.tree import KernelTree


def is_immaterial(tree: KernelTree, literal: Node) -> bool:
    """Whether a literal fills a shared tile where no stored result can depend on it.

    The literal is the zero of a product's tile, or anything that an inclusive scan starts from
    past its end.
    """
    if _ends_scan(tree, literal):
        return True
    if number(tree, literal) != 0.0:
        return False
    condition = _fill_condition(tree, literal)
    if condition is None:
        return False
    tests = _tests(tree, condition)
    if not tests or not all(test is not None and test.upper for test in tests):
        return False
    covered = _stored_bounds(tree, literal) | _other_fills(tree, condition)
    return all(test is not None and _parts(tree, test) & covered for test in tests)


def _ends_scan(tree: KernelTree, literal: Node) -> bool:
    """Whether a literal fills the lanes past the end of an inclusive scan by ``__shfl_up_sync``.

    ``v = i < n ? x[i] : fill; v = scan(v); if (i < n) y[i] = v``: no lower lane reads it.
    """
    holder = tree.parent(literal)
    if holder is None or holder.type != "conditional_expression":
        return False
    declarator = tree.parent(holder)
    if declarator is None or declarator.type != "init_declarator":
        return False
    if field(holder, "alternative").id != literal.id or not _scans_up(tree, literal):
        return False
    name, test = tree.text(field(declarator, "declarator")), tree.text(field(holder, "condition"))
    return any(
        compact(tree.text(guard.condition)) == compact(test)
        and guard.owner.type == "if_statement"
        and name in {tree.text(n) for n in tree.nodes("identifier", within=guard.owner)}
        for guard in guards(tree)
        if guard.owner.start_byte > literal.end_byte
    )


def _scans_up(tree: KernelTree, node: Node) -> bool:
    text = "".join(tree.text(f) for f in reached(tree, tree.function(node)))
    others = ("__shfl_down_sync", "__shfl_xor_sync", "__shfl_sync")
    return "__shfl_up_sync" in text and not any(name in text for name in others)


def _bound(tree: KernelTree, test: BoundTest) -> str:
    return compact(tree.text(bare(test.bound)))


def _parts(tree: KernelTree, test: BoundTest) -> set[str]:
    """A bound, and the factors of its product: ``i < count * taps`` is a test of ``count``."""
    return {_bound(tree, test)} | {compact(tree.text(f)) for f in factors(tree, bare(test.bound))}


def _tests(tree: KernelTree, condition: Node) -> list[BoundTest | None]:
    return [bound_test(tree, part, inside=True) for part in flatten(tree, condition, "&&")]


def _fill_condition(tree: KernelTree, literal: Node) -> Node | None:
    """The condition under which an element is staged in place of ``literal``."""
    holder = tree.enclosing(
        literal, "conditional_expression", "init_declarator", "compound_statement"
    )
    if holder is None:
        return None
    if holder.type == "conditional_expression":
        staged = field(holder, "alternative").id == literal.id and _is_staged(tree, holder)
        return field(holder, "condition") if staged else None
    if holder.type != "init_declarator":
        return None
    name = tree.text(field(holder, "declarator"))
    declaration = tree.parent(holder)
    block = tree.parent(declaration) if declaration is not None else None
    if block is None or not any(_stages(tree, n, name) for n in tree.nodes(within=block)):
        return None
    after = declaration.next_named_sibling if declaration is not None else None
    if after is None or after.type != "if_statement":
        return None
    sets = any(
        tree.text(field(n, "left")) == name
        for n in tree.nodes("assignment_expression", within=after)
    )
    return field(after, "condition").child_by_field_name("value") if sets else None


def _is_staged(tree: KernelTree, value: Node) -> bool:
    store = tree.parent(value)
    return (
        store is not None
        and store.type == "assignment_expression"
        and field(store, "right").id == value.id
        and storage(tree, field(store, "left")) == "shared"
    )


def _stages(tree: KernelTree, node: Node, name: str) -> bool:
    """Whether a statement writes the variable ``name``, or a lane of it, to shared memory."""
    if node.type != "assignment_expression" or operator(tree, node) != "=":
        return False
    value = bare(field(node, "right"))
    base = field(value, "argument") if value.type == "field_expression" else value
    return tree.text(base) == name and storage(tree, field(node, "left")) == "shared"


def _stored_bounds(tree: KernelTree, literal: Node) -> set[str]:
    """The bounds of the tests and loops around the stores to global memory."""
    function = tree.function(literal)
    stores = [
        node
        for node in tree.nodes("assignment_expression", within=function)
        if bare(field(node, "left")).type == "subscript_expression"
        and storage(tree, field(node, "left")) == "global"
    ]
    found: list[set[str]] = []
    for store in stores:
        around = {a.id for a in tree.ancestors(store)}
        bounds = {
            _bound(tree, loop.test)
            for loop in loops(tree)
            if loop.node.id in around and loop.test is not None
        }
        for guard in guards(tree):
            passed = guard.exits and guard.owner.end_byte <= store.start_byte
            if guard.owner.id in around or passed:
                bounds |= {_bound(tree, test) for test in guard.tests if test.upper}
        found.append(bounds)
    return set.intersection(*found) if found else set()


def _other_fills(tree: KernelTree, own: Node) -> set[str]:
    """The bounds past which another tile of the same function is filled with zeros."""
    found: set[str] = set()
    targets = _tile_of(tree, own)
    for node in tree.nodes("conditional_expression", within=tree.function(own)):
        alternative = field(node, "alternative")
        if number(tree, alternative) != 0.0 or not _is_staged(tree, node):
            continue
        store = tree.parent(node)
        assert store is not None
        if _root(tree, field(store, "left")) in targets:
            continue
        found |= {_bound(tree, t) for t in _tests(tree, field(node, "condition")) if t and t.upper}
    return found


def _tile_of(tree: KernelTree, condition: Node) -> set[str]:
    """The shared arrays that are staged in the statement, or the block, of a fill."""
    block = tree.enclosing(condition, "expression_statement", "compound_statement")
    return {
        _root(tree, field(node, "left"))
        for node in tree.nodes("assignment_expression", within=block)
        if storage(tree, field(node, "left")) == "shared"
    }


def _root(tree: KernelTree, target: Node) -> str:
    while target.type == "subscript_expression":
        target = bare(field(target, "argument"))
    return tree.text(target)
