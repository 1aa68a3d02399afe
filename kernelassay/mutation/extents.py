"""Which expressions of device code are extents, and which vary from thread to thread.

An expression is *fixed* if it is made of constants, integer kernel parameters, ``blockDim`` /
``gridDim`` and locals initialised from these and never written again: the size of something.
Everything else (thread coordinates, loop variables) *varies*. A bound test compares one with
the other. The helpers on integer text that several rules share live here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.nodes import arguments, callee, field, operator
from kernelassay.mutation.tree import KernelTree

_INTEGERS = ("int", "long")
_OPAQUE = frozenset({"subscript_expression", "pointer_expression", "assignment_expression"})
_ATOMS = frozenset(
    {
        "identifier",
        "number_literal",
        "field_expression",
        "call_expression",
        "subscript_expression",
        "parenthesized_expression",
    }
)
_DEPTH = 6  # how far definitions are followed; deeper chains count as varying


def bare(node: Node) -> Node:
    """``node`` without parentheses, casts or ``static_cast`` around it."""
    while True:
        inner: Node | None = None
        if node.type == "parenthesized_expression":
            inner = node.named_children[0]
        elif node.type == "cast_expression":
            inner = field(node, "value")
        elif node.type == "call_expression":
            function = field(node, "function")
            arguments = field(node, "arguments").named_children
            if function.type in ("template_function", "primitive_type") and len(arguments) == 1:
                inner = arguments[0]
        if inner is None:
            return node
        node = inner


def compact(text: str) -> str:
    """``text`` without white space, for comparisons."""
    return re.sub(r"\s+", "", text)


def literal(tree: KernelTree, node: Node | None) -> int | None:
    """The value of an integer literal, else None."""
    if node is None or node.type != "number_literal":
        return None
    text = tree.text(node).replace("'", "")
    match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)[uUlL]*", text)
    return int(match.group(1), 0 if "x" in match.group(1).lower() else 10) if match else None


def wrap(tree: KernelTree, node: Node) -> str:
    """The text of ``node``, in parentheses unless it is an atom."""
    text = tree.text(node)
    return text if node.type in _ATOMS or re.fullmatch(r"\w+", text) else f"({text})"


def is_macro_name(tree: KernelTree, node: Node) -> bool:
    """Whether a name is spelled like a macro (``TILE``) and not like a size (``N``)."""
    text = tree.text(node)
    return node.type == "identifier" and text.isupper() and len(text) > 1


def shifted(tree: KernelTree, node: Node, by: int) -> str:
    """The text of ``node + by``; literals are added up, ``e + 1 - 1`` is not simplified."""
    value = literal(tree, node)
    if value is not None:
        return str(value + by)
    sign = "+" if by > 0 else "-"
    arithmetic = node.type == "binary_expression" and operator(tree, node) in "+-*/%"
    text = tree.text(node) if arithmetic else wrap(tree, node)
    return f"{text} {sign} {abs(by)}"


def scaled(tree: KernelTree, node: Node, up: int = 1, down: int = 1) -> str:
    """The text of ``node * up / down``; literals are computed."""
    value = literal(tree, node)
    if value is not None:
        return str(value * up // down)
    return f"{wrap(tree, node)} * {up}" if up > 1 else f"{wrap(tree, node)} / {down}"


class Extents:
    """Tells fixed from varying expressions, and follows definitions of locals."""

    def __init__(self, tree: KernelTree) -> None:
        self._tree = tree
        self._definitions: dict[tuple[int, str], list[Node | None]] = {}
        self._written: set[tuple[int, str]] = set()
        self._parameters = {
            f.id: {p.name: p for p in tree.parameters(f)}
            for f in (*tree.kernels, *tree.device_functions)
        }
        self._calls: dict[str, list[Node]] = {}
        self._collect()

    def _collect(self) -> None:
        tree = self._tree
        for node in tree.nodes("declaration"):
            function = tree.function(node)
            for declarator in node.children_by_field_name("declarator"):
                value = declarator.child_by_field_name("value")
                name = declarator
                while (inner := name.child_by_field_name("declarator")) is not None:
                    name = inner
                if name.type == "identifier":
                    key = (function.id, tree.text(name))
                    self._definitions.setdefault(key, []).append(value)
        for node in tree.nodes("assignment_expression", "update_expression", "pointer_expression"):
            if node.type == "pointer_expression" and operator(tree, node) != "&":
                continue
            assigned = node.type == "assignment_expression"
            target = field(node, "left" if assigned else "argument")
            if target.type == "identifier":
                self._written.add((tree.function(node).id, tree.text(target)))
        for node in tree.nodes("call_expression"):
            self._calls.setdefault(callee(tree, node), []).append(node)

    # -- definitions ------------------------------------------------------------------------

    def definition(self, node: Node) -> Node | None:
        """The initialiser of the local that an identifier names, if it is its only value."""
        if node.type != "identifier":
            return None
        key = (self._tree.function(node).id, self._tree.text(node))
        values = self._definitions.get(key, [])
        return values[0] if len(values) == 1 and key not in self._written else None

    def resolve(self, node: Node) -> Node:
        """``node``, or the expression that defines it if it names a local written once."""
        for _ in range(_DEPTH):
            node = bare(node)
            definition = self.definition(node)
            if definition is None:
                return node
            node = definition
        return node

    def expand(self, node: Node, depth: int = _DEPTH) -> str:
        """The compact text of an expression with the locals in it replaced by their values."""
        definition = self.definition(node)
        if definition is not None and depth > 0:
            inner = self.expand(definition, depth - 1)
            return inner if re.fullmatch(r"[\w.]+", inner) else f"({inner})"
        if node.type == "cast_expression":
            return self.expand(field(node, "value"), depth)
        if not node.children or node.type == "field_expression":
            return compact(self._tree.text(node))
        return "".join(self.expand(part, depth) for part in node.children)

    # -- roles ------------------------------------------------------------------------------

    def fixed(self, node: Node, depth: int = _DEPTH) -> bool:
        """Whether an integer expression is the same for all threads and all iterations."""
        tree = self._tree
        if node.type == "number_literal":
            return literal(tree, node) is not None
        if node.type == "identifier":
            return self._fixed_name(node, depth)
        if node.type == "field_expression":
            owner = tree.text(field(node, "argument"))
            return owner not in ("threadIdx", "blockIdx") and self.fixed(
                field(node, "argument"), depth
            )
        if node.type in _OPAQUE or not node.named_children:
            return node.type in ("sizeof_expression", "type_descriptor", "primitive_type")
        if node.type == "call_expression":
            if self._is_collective(callee(tree, node)):
                return False
            return all(self.fixed(argument, depth) for argument in arguments(node))
        return all(
            self.fixed(part, depth)
            for part in node.named_children
            if part.type not in ("type_descriptor", "comment")
        )

    @staticmethod
    def _is_collective(name: str) -> bool:
        return name.startswith(("__shfl", "__ballot", "atomic", "__float", "__any", "__all"))

    def _fixed_name(self, node: Node, depth: int) -> bool:
        name = self._tree.text(node)
        if name in ("threadIdx", "blockIdx"):
            return False
        function = self._tree.function(node)
        key = (function.id, name)
        if key in self._written or depth == 0:
            return False
        if key in self._definitions:
            return all(
                value is not None and self.fixed(value, depth - 1)
                for value in self._definitions[key]
            )
        parameter = self._parameters.get(function.id, {}).get(name)
        if parameter is None:
            return True  # a macro, a constexpr, warpSize
        if parameter.kind not in _INTEGERS:
            return False
        if any(function.id == kernel.id for kernel in self._tree.kernels):
            return True
        return self._fixed_parameter(function, name, depth)

    def _fixed_parameter(self, function: Node, name: str, depth: int) -> bool:
        """A parameter of a device function is fixed if every call hands in something fixed."""
        position = list(self._parameters[function.id]).index(name)
        calls = self._calls.get(self._tree.name(function), [])
        given = [arguments(call) for call in calls]
        return bool(given) and all(
            position < len(values) and self.fixed(values[position], depth - 1) for values in given
        )

    def sizes(self, function: Node) -> Iterator[str]:
        """The fixed integer parameters of a function, in order."""
        for name, parameter in self._parameters[function.id].items():
            written = (function.id, name) in self._written
            if parameter.kind in _INTEGERS and not parameter.is_pointer and not written:
                yield name


_ANALYSED: dict[int, tuple[KernelTree, Extents]] = {}


def extents(tree: KernelTree) -> Extents:
    """The extents of ``tree``; the last tree's are kept, since rules run one after another."""
    kept = _ANALYSED.get(id(tree))
    if kept is None or kept[0] is not tree:
        _ANALYSED.clear()
        kept = (tree, Extents(tree))
        _ANALYSED[id(tree)] = kept
    return kept[1]


# -- quotients that round up --------------------------------------------------------------------


def terms(tree: KernelTree, node: Node, sign: int = 1) -> list[tuple[int, Node]]:
    """The signed terms of a sum, left to right, through parentheses."""
    inner = node.named_children[0] if node.type == "parenthesized_expression" else node
    if inner.type == "binary_expression" and operator(tree, inner) in ("+", "-"):
        right = sign if operator(tree, inner) == "+" else -sign
        return [
            *terms(tree, field(inner, "left"), sign),
            *terms(tree, field(inner, "right"), right),
        ]
    return [(sign, node)]


_CEIL_CALL = re.compile(r"(?i)(ceil_?div|div_?ceil|div_?up|div_?round_?up|cdiv)")


def floor_of_ceil(tree: KernelTree, node: Node) -> str | None:
    """The floor-divided text for a ceil-divided quotient, or None if ``node`` is none.

    Knows ``(n + d - 1) / d`` in any order, ``(n + 255) / 256``, ``(n + 31) >> 5``,
    ``(n - 1) / d + 1`` and calls such as ``ceil_div(n, d)``.
    """
    if node.type == "call_expression":
        given = arguments(node)
        if _CEIL_CALL.fullmatch(callee(tree, node)) and len(given) == 2:
            return f"{wrap(tree, given[0])} / {wrap(tree, given[1])}"
        return None
    if node.type != "binary_expression":
        return None
    left, right = field(node, "left"), field(node, "right")
    match operator(tree, node):
        case "/":
            rest = _without_round_up(tree, left, right, literal(tree, right))
            return f"{rest} / {tree.text(right)}" if rest else None
        case ">>":
            shift = literal(tree, right)
            divisor = None if shift is None else 1 << shift
            rest = _without_round_up(tree, left, right, divisor)
            return f"{rest} >> {tree.text(right)}" if rest else None
        case "+" if literal(tree, right) == 1 and left.type == "binary_expression":
            numerator = field(left, "left")
            parts = terms(tree, numerator)
            last = parts[-1]
            if operator(tree, left) != "/" or len(parts) < 2:
                return None
            if last[0] != -1 or literal(tree, last[1]) != 1:
                return None
            return f"{_join(tree, parts[:-1])} / {tree.text(field(left, 'right'))}"
    return None


def _without_round_up(
    tree: KernelTree, numerator: Node, divisor: Node, value: int | None
) -> str | None:
    parts = terms(tree, numerator)
    if numerator.type == "cast_expression":
        return None
    divisor_text = compact(tree.text(bare(divisor)))
    for position, (sign, part) in enumerate(parts):
        same = compact(tree.text(bare(part))) == divisor_text
        one = next((i for i, (s, p) in enumerate(parts) if s < 0 and literal(tree, p) == 1), None)
        if sign > 0 and same and one is not None and len(parts) > 2:
            return _join(tree, [p for i, p in enumerate(parts) if i not in (position, one)])
        rounds = value is not None and value > 1 and literal(tree, part) == value - 1
        if sign > 0 and rounds and len(parts) > 1:
            return _join(tree, [p for i, p in enumerate(parts) if i != position])
    return None


def _join(tree: KernelTree, parts: list[tuple[int, Node]]) -> str:
    text = ""
    for sign, part in parts:
        text += (" + " if sign > 0 else " - ") if text else ("" if sign > 0 else "-")
        text += tree.text(part)
    atom = len(parts) == 1 and (parts[0][1].type in _ATOMS or parts[0][1].type == "cast_expression")
    return text if atom else f"({text})"
