"""Small questions and rewrites that several rule families share."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.nodes import callee, field, operator
from kernelassay.mutation.rule import Edit
from kernelassay.mutation.tree import KernelTree, insert, replace

PRECEDENCE = {
    "||": 1,
    "&&": 2,
    "|": 3,
    "^": 4,
    "&": 5,
    "==": 6,
    "!=": 6,
    "<": 7,
    ">": 7,
    "<=": 7,
    ">=": 7,
    "<<": 8,
    ">>": 8,
    "+": 9,
    "-": 9,
    "*": 10,
    "/": 10,
    "%": 10,
}
_ATOMS = (
    "identifier",
    "number_literal",
    "subscript_expression",
    "call_expression",
    "field_expression",
    "parenthesized_expression",
    "true",
    "false",
)


def binaries(tree: KernelTree, *operators: str, within: Node | None = None) -> Iterator[Node]:
    """The binary expressions with one of ``operators``, in source order."""
    for node in tree.nodes("binary_expression", within=within):
        if operator(tree, node) in operators:
            yield node


def bare(node: Node) -> Node:
    """The expression inside any parentheses around it."""
    while node.type == "parenthesized_expression":
        node = node.named_children[0]
    return node


def outer(tree: KernelTree, node: Node) -> Node:
    """``node``, or the outermost parentheses around it."""
    parent = tree.parent(node)
    while parent is not None and parent.type == "parenthesized_expression":
        node, parent = parent, tree.parent(parent)
    return node


def atom(tree: KernelTree, node: Node) -> str:
    """The text of an expression, in parentheses unless it binds tighter than any operator."""
    text = tree.text(node)
    simple = node.type in _ATOMS and not text.startswith("-")
    return text if simple else f"({text})"


def number(tree: KernelTree, node: Node) -> float | None:
    """The value of a number literal (in parentheses or not), else None."""
    node = bare(node)
    if node.type != "number_literal":
        return None
    text = tree.text(node).lower()
    try:
        if text.startswith(("0x", "-0x", "0b")):
            return float(int(text.rstrip("ul"), 0))
        return float(text.rstrip("ful"))
    except ValueError:
        return None


def swap(tree: KernelTree, one: Node, two: Node) -> tuple[Edit, Edit]:
    """The edits that exchange two expressions, parenthesised where their new place needs it."""
    return replace(one, tree.text(two)), replace(two, tree.text(one))


def change_operator(tree: KernelTree, node: Node, new: str) -> list[Edit]:
    """The edits that give a binary expression another operator and keep its operands.

    ``a * b`` under ``-`` becomes ``(a + b)``, and ``a + b + c`` becomes ``(a + b) * c``.
    """
    old = operator(tree, node)
    edits = [replace(field(node, "operator"), new)]
    for name in ("left", "right"):
        side = field(node, name)
        weaker = PRECEDENCE.get(operator(tree, side), 99) < PRECEDENCE[new]
        if side.type == "conditional_expression" or (side.type == "binary_expression" and weaker):
            edits += [insert(side.start_byte, "("), insert(side.end_byte, ")")]
    parent = tree.parent(node)
    if parent is not None and PRECEDENCE[new] < PRECEDENCE[old] and _binds(tree, parent, new):
        edits += [insert(node.start_byte, "("), insert(node.end_byte, ")")]
    return edits


def _binds(tree: KernelTree, parent: Node, new: str) -> bool:
    if parent.type in ("unary_expression", "cast_expression", "pointer_expression"):
        return True
    if parent.type != "binary_expression":
        return False
    outside = operator(tree, parent)
    # A lower operator on the right of `-` or `/` needs parentheses at equal strength too.
    return PRECEDENCE[outside] > PRECEDENCE[new] or (
        PRECEDENCE[outside] == PRECEDENCE[new] and outside in ("-", "/", "%")
    )


def arguments(call: Node) -> list[Node]:
    """The argument expressions of a call."""
    listed = call.child_by_field_name("arguments")
    return [] if listed is None else [c for c in listed.named_children if c.type != "comment"]


def in_loop_header(tree: KernelTree, node: Node) -> bool:
    """Whether ``node`` lies in the parentheses of a ``for``."""
    below = node
    for above in tree.ancestors(node):
        if above.type == "for_statement":
            body = above.child_by_field_name("body")
            return body is None or below.id != body.id
        if above.type in ("compound_statement", "function_definition"):
            return False
        below = above
    return False


def in_bound(tree: KernelTree, node: Node) -> bool:
    """Whether ``node`` lies in a bound test or in the header of a ``for``."""
    if in_loop_header(tree, node):
        return True
    return tree.is_bound(node) or any(
        tree.is_bound(above) for above in tree.ancestors(node) if above.type == "binary_expression"
    )


def storage(tree: KernelTree, node: Node) -> str:
    """Where the memory behind a subscript or pointer lies: ``shared``, ``local``, ``global``.

    Pointers are followed through their initialisers; a pointer parameter counts as global.
    """
    node = bare(node)
    match node.type:
        case "subscript_expression" | "pointer_expression":
            return storage(tree, field(node, "argument"))
        case "binary_expression":
            left, right = field(node, "left"), field(node, "right")
            return storage(tree, left if tree.kind(left) == "pointer" else right)
        case "cast_expression":
            return storage(tree, field(node, "value"))
        case "call_expression":
            given = arguments(node)
            return storage(tree, given[0]) if given else "global"
        case "identifier":
            return _declared_storage(tree, node)
        case _:
            return "global"


def _declared_storage(tree: KernelTree, identifier: Node) -> str:
    declared = tree.declared(identifier)
    if declared is None or declared.node.type == "parameter_declaration":
        return "global"
    if "__shared__" in declared.type_text:
        return "shared"
    target = declared.declarator
    if target.type == "init_declarator":
        target = field(target, "declarator")
    if target.type == "array_declarator":
        return "global" if "__constant__" in declared.type_text else "local"
    value = declared.value
    if declared.type.depth and value is not None and value.start_byte > identifier.end_byte:
        return "global"  # its own declaration
    return storage(tree, value) if declared.type.depth and value is not None else "global"


def is_store_target(tree: KernelTree, node: Node) -> bool:
    """Whether a subscript is written: the left of an assignment, or an atomic's target."""
    parent = tree.parent(node)
    if parent is None:
        return False
    if parent.type == "assignment_expression":
        return field(parent, "left").id == node.id
    if parent.type == "pointer_expression":
        call = tree.enclosing(parent, "call_expression", "expression_statement")
        return (
            call is not None
            and call.type == "call_expression"
            and callee(tree, call).startswith("atomic")
        )
    return False
