"""Changes of a sign or a constant that no result can show."""

from __future__ import annotations

from tree_sitter import Node

from kernelassay.mutation.extents import extents
from kernelassay.mutation.nodes import callee, field, operator
from kernelassay.mutation.sites import bare, number, outer
from kernelassay.mutation.tree import KernelTree
from kernelassay.mutation.uniformity import interchangeable

_EVEN = ("fabsf", "fabs", "abs", "coshf", "cosf")


def is_sign_lost(tree: KernelTree, node: Node) -> bool:
    """Whether a difference is only squared or taken the absolute of: its sign is lost."""
    if operator(tree, node) != "-":
        return False
    holder = tree.parent(outer(tree, node))
    if holder is None or holder.type != "init_declarator":
        return _loses_sign(tree, node)
    name, function = tree.text(field(holder, "declarator")), tree.function(node)
    uses = [
        use
        for use in tree.nodes("identifier", within=function)
        if tree.text(use) == name
        and use.start_byte > holder.end_byte
        and (declared := tree.declared(use)) is not None
        and holder.start_byte <= declared.start < holder.end_byte
    ]
    return bool(uses) and all(_loses_sign(tree, use) for use in uses)


def _loses_sign(tree: KernelTree, node: Node) -> bool:
    node = outer(tree, node)
    around = tree.parent(node)
    if around is None:
        return False
    if around.type == "binary_expression" and operator(tree, around) == "*":
        left, right = field(around, "left"), field(around, "right")
        return tree.text(bare(left)) == tree.text(bare(right))
    call = tree.parent(around) if around.type == "argument_list" else None
    return call is not None and call.type == "call_expression" and callee(tree, call) in _EVEN


def is_weightless(tree: KernelTree, literal: Node) -> bool:
    """Whether a literal is the mean of no elements: ``{0, mean, m2}`` of Welford's moments.

    The first element, or the first set merged, replaces it whatever it is.
    """
    listed = tree.parent(literal)
    if listed is None or listed.type != "initializer_list":
        return False
    declaration = tree.enclosing(listed, "declaration")
    spelled = declaration.child_by_field_name("type") if declaration is not None else None
    struct = next(
        (
            s
            for s in tree.nodes("struct_specifier", within=tree.root)
            if spelled is not None
            and s.child_by_field_name("body") is not None
            and tree.text(field(s, "name")) == tree.text(spelled)
        ),
        None,
    )
    if struct is None:
        return False
    members = [tree.text(m) for m in tree.nodes("field_identifier", within=field(struct, "body"))]
    values = dict(zip(members, listed.named_children, strict=False))
    count, mean = values.get("count"), values.get("mean")
    if count is None or mean is None or mean.id != literal.id:
        return False
    return number(tree, count) == 0.0


def is_free_choice(tree: KernelTree, literal: Node, step: int) -> bool:
    """Whether a literal only chooses one of several threads that would do the same.

    A choice of thread -1 is none; where it chooses between a vector path and its fallback, the
    fallback does it all.
    """
    test = tree.parent(literal)
    if test is not None and operator(tree, test) == "%":
        test = tree.parent(test)
    elif step < 0:
        return test is not None and _is_alignment(tree, test)
    return test is not None and interchangeable(tree, test)


def _is_alignment(tree: KernelTree, test: Node) -> bool:
    """Whether a test is ``size % 4 == 0`` with another way to go."""
    if operator(tree, test) != "==" or number(tree, field(test, "right")) != 0.0:
        return False
    left = bare(field(test, "left"))
    if left.type != "binary_expression" or operator(tree, left) != "%":
        return False
    holder = tree.enclosing(test, "if_statement", "conditional_expression")
    other = holder.child_by_field_name("alternative") if holder is not None else None
    sides = field(left, "left"), field(left, "right")
    return other is not None and all(extents(tree).fixed(side) for side in sides)
