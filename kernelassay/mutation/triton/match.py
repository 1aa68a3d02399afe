"""Questions about single nodes of a Triton tree, and the edits that rules make of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import libcst as cst

from kernelassay.mutation.rule import Edit
from kernelassay.mutation.triton.tree import TritonTree

_ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.BaseNumber, cst.BaseString)
_AROUND = (cst.BinaryOperation, cst.UnaryOperation)
_TESTS = (cst.Comparison, cst.ComparisonTarget)
_LOOSE = (cst.Comparison, cst.BooleanOperation, cst.IfExp, cst.Lambda)
_INFINITY = re.compile(r"""(-?)(?:float\(["'](-?)inf(?:inity)?["']\)|(?:\w+\.)*inf)""", re.I)

OPERATORS = {
    cst.Add: "+",
    cst.Subtract: "-",
    cst.Multiply: "*",
    cst.Divide: "/",
    cst.FloorDivide: "//",
    cst.Modulo: "%",
    cst.BitAnd: "&",
    cst.BitOr: "|",
    cst.AddAssign: "+",
    cst.SubtractAssign: "-",
    cst.MultiplyAssign: "*",
    cst.DivideAssign: "/",
    cst.LessThan: "<",
    cst.LessThanEqual: "<=",
    cst.GreaterThan: ">",
    cst.GreaterThanEqual: ">=",
    cst.Equal: "==",
    cst.NotEqual: "!=",
}


# -- nodes --------------------------------------------------------------------------------------


def operator(node: cst.CSTNode) -> str:
    """The operator of a binary operation, of an augmented assignment, or of a comparison."""
    held = node.comparisons[0] if isinstance(node, cst.Comparison) else node
    return OPERATORS.get(type(held.operator), "")


def binaries(tree: TritonTree, *signs: str) -> Iterator[cst.BinaryOperation]:
    """The binary operations of device code with one of these operators."""
    return (n for n in tree.nodes(cst.BinaryOperation) if operator(n) in signs)


def binary(node: cst.CSTNode | None, *signs: str) -> bool:
    """Whether a node is a binary operation with one of these operators."""
    return isinstance(node, cst.BinaryOperation) and operator(node) in signs


def comparison(
    node: cst.CSTNode,
) -> tuple[cst.BaseExpression, str, cst.BaseExpression] | None:
    """Both sides of a comparison with one operator, and the operator between them."""
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return None
    return node.left, operator(node), node.comparisons[0].comparator


def argument(call: cst.Call, position: int | None, keyword: str = "") -> cst.Arg | None:
    """An argument by its position (None: by keyword only) or its keyword; no starred ones."""
    for index, arg in enumerate(call.args):
        if arg.star:
            position = None  # what follows has no known position
        elif arg.keyword is not None:
            if arg.keyword.value == keyword:
                return arg
        elif index == position:
            return arg
    return None


def value(call: cst.Call, position: int | None, keyword: str = "") -> cst.BaseExpression | None:
    """The value of such an argument."""
    found = argument(call, position, keyword)
    return None if found is None else found.value


def number(node: cst.CSTNode | None) -> float | None:
    """The value of a number that is written out, with its sign."""
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        inner = number(node.expression)
        return None if inner is None else -inner
    if isinstance(node, cst.Integer | cst.Float):
        return float(node.evaluated_value)
    return None


def infinity(tree: TritonTree, node: cst.CSTNode | None) -> int:
    """-1 for a spelled minus infinity, 1 for plus infinity, 0 for anything else."""
    found = None if node is None else _INFINITY.fullmatch(re.sub(r"\s", "", tree.text(node)))
    if found is None:
        return 0
    return -1 if bool(found[1]) != bool(found[2]) else 1


def names(tree: TritonTree, node: cst.CSTNode) -> list[str]:
    """The variables an expression reads, in source order; no attribute, function or keyword."""
    found = []
    for name in tree.nodes(cst.Name, within=node):
        outer = tree.parent(name)
        if isinstance(outer, cst.Attribute) and (outer.attr is name or tree.is_imported(outer)):
            continue
        if isinstance(outer, cst.Arg) and outer.keyword is name:
            continue
        if isinstance(outer, cst.Call) and outer.func is name:
            continue
        if name.value not in ("None", "True", "False"):
            found.append(name.value)
    return found


def terms(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The terms of a sum, parentheses or not: ``a, b, c`` of ``a + (b + c)``."""
    if binary(node, "+"):
        return [*terms(node.left), *terms(node.right)]
    return [node]


def statement(tree: TritonTree, node: cst.CSTNode) -> cst.CSTNode | None:
    """The simple statement that a node lies in: an assignment, an expression."""
    return tree.enclosing(node, cst.BaseSmallStatement)


# -- text ---------------------------------------------------------------------------------------


def atom(tree: TritonTree, node: cst.CSTNode) -> str:
    """The text of an expression as an operand, in parentheses if it needs them."""
    if isinstance(node, _ATOMS) or getattr(node, "lpar", ()):
        return tree.full(node)
    return f"({tree.text(node)})"


@lru_cache(maxsize=4096)
def _parsed(text: str) -> cst.BaseExpression:
    return cst.parse_expression(text)


def _needs_parentheses(text: str, outer: cst.CSTNode | None, is_held: bool) -> bool:
    """Whether an expression must stand in parentheses in its new place."""
    new = _parsed(text)
    if isinstance(new, _ATOMS) or new.lpar:
        return False
    return (
        isinstance(outer, _AROUND)
        or is_held
        or (isinstance(outer, _TESTS) and isinstance(new, _LOOSE))
    )


# -- edits --------------------------------------------------------------------------------------


def replace(tree: TritonTree, node: cst.CSTNode, text: str) -> Edit:
    """The edit that puts exactly ``text`` in place of a node; parentheses around it stay."""
    return Edit(*tree.span(node), text)


def put(tree: TritonTree, node: cst.BaseExpression, text: str) -> Edit:
    """The edit that puts an expression in place of one, in parentheses where it needs them."""
    outer = tree.parent(node)
    is_held = isinstance(outer, cst.Attribute | cst.Subscript) and outer.value is node
    # Parentheses around the old expression stay, so that the new one lies in them.
    if not node.lpar and _needs_parentheses(text, outer, is_held):
        text = f"({text})"
    return replace(tree, node, text)


def lift(tree: TritonTree, node: cst.BaseExpression, part: cst.BaseExpression) -> Edit:
    """The edit that puts a part of an expression in the place of the whole."""
    return put(tree, node, tree.full(part))


def sign(tree: TritonTree, node: cst.CSTNode, text: str) -> Edit:
    """The edit that puts another operator into a binary operation, comparison or ``+=``."""
    held = node.comparisons[0] if isinstance(node, cst.Comparison) else node
    return replace(tree, held.operator, text)


def without_argument(tree: TritonTree, call: cst.Call, *dropped: cst.Arg) -> tuple[Edit, ...]:
    """The edits that remove arguments of a call that are not its first one."""
    edits = []
    for before, arg in zip(call.args, call.args[1:], strict=False):
        if arg in dropped:
            edits.append(Edit(tree.span(before)[1], tree.span(arg)[1], ""))
    return tuple(edits)
