"""Declarations and expression types of one parsed kernel source (see ``cuda_types``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tree_sitter import Node

from kernelassay.mutation.cuda_types import (
    BOOL,
    FLOAT,
    INT,
    LONG,
    NAMED_CONSTANTS,
    READS_POINTER,
    SAME_AS_ARGUMENT,
    UNKNOWN,
    CType,
    call_type,
    literal_type,
    member_type,
    parse_type,
    promote,
)

if TYPE_CHECKING:
    from kernelassay.mutation.tree import KernelTree

_COORDINATES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
_CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast"})
_SCOPES = (
    "compound_statement",
    "for_statement",
    "for_range_loop",
    "lambda_expression",
    "function_definition",
    "translation_unit",
)
_COMPARISONS = frozenset({"<", ">", "<=", ">=", "==", "!=", "&&", "||"})
_SHIFTS = frozenset({"<<", ">>"})
_FLOAT_TEXT = re.compile(r"(\d+\.\d*|\.\d+|\d+[eE][+-]?\d+)([eE][+-]?\d+)?[fF]?")


@dataclass(frozen=True, slots=True)
class Declared:
    """One declared name: its type, its spelled type, the bytes where it is visible."""

    name: str
    type: CType
    type_text: str
    node: Node
    declarator: Node
    start: int
    scope: tuple[int, int]

    @property
    def value(self) -> Node | None:
        """The initialiser's expression, if the declaration has one."""
        return self.declarator.child_by_field_name("value")


class Types:
    """Looks up declarations and infers the static types of expressions."""

    def __init__(self, tree: KernelTree) -> None:
        self._tree = tree
        self._declared: dict[str, list[Declared]] = {}
        self._members: dict[str, dict[str, CType]] = {}
        self._returns: dict[str, CType] = {}
        self._macros: dict[str, CType] = {}
        self._cache: dict[int, CType] = {}
        self._parameters: dict[int, list[Declared]] = {}
        for node in tree.nodes(within=tree.root):
            self._collect(node)

    # -- declarations -----------------------------------------------------------------------

    def _collect(self, node: Node) -> None:
        if node.type in ("declaration", "parameter_declaration", "for_range_loop"):
            for declared in self._declarators(node):
                self._declared.setdefault(declared.name, []).append(declared)
        elif node.type == "struct_specifier":
            self._collect_struct(node)
        elif node.type == "function_definition":
            returned = node.child_by_field_name("type")
            name = self._tree.name(node)
            if returned is not None and name:
                self._returns[name] = parse_type(self._tree.text(returned))
        elif node.type == "preproc_def":
            name_node, value = (node.child_by_field_name(f) for f in ("name", "value"))
            if name_node is not None and value is not None:
                self._macros[self._tree.text(name_node)] = self._macro(self._tree.text(value))

    def _macro(self, text: str) -> CType:
        if _FLOAT_TEXT.search(text):
            return FLOAT if re.search(r"[\d.][fF]\b", text) else literal_type("1.0")
        names = re.findall(r"[A-Za-z_]\w*", re.sub(r"\b\d\w*", "0", text))
        if any(name not in self._macros for name in names):
            return NAMED_CONSTANTS.get(text.strip(" ()-"), UNKNOWN)
        kinds = [self._macros[name] for name in names]
        return next((k for k in kinds if k.kind not in ("int", "long")), INT)

    def _collect_struct(self, node: Node) -> None:
        name, body = (node.child_by_field_name(f) for f in ("name", "body"))
        if name is None or body is None:
            return
        members: dict[str, CType] = {}
        for field in body.named_children:
            spelled = field.child_by_field_name("type")
            if field.type != "field_declaration" or spelled is None:
                continue
            base = parse_type(self._tree.text(spelled))
            for declarator in field.children_by_field_name("declarator"):
                inner, depth = _unwrap(declarator)
                members[self._tree.text(inner)] = CType(base.base, base.depth + depth)
        self._members[self._tree.text(name)] = members

    def _declarators(self, node: Node) -> Iterator[Declared]:
        spelled = node.child_by_field_name("type")
        if spelled is None:
            return
        scope_node = self._tree.enclosing(node, *_SCOPES) or self._tree.root
        if node.type == "for_range_loop":
            scope_node = node
        base = parse_type(self._tree.text(spelled))
        for declarator in node.children_by_field_name("declarator"):
            inner, depth = _unwrap(declarator)
            if inner.type != "identifier":
                continue
            found = CType(base.base, base.depth + depth)
            if base.base == "auto":
                value = declarator.child_by_field_name("value")
                found = self.of(value) if value is not None else UNKNOWN
            yield Declared(
                name=self._tree.text(inner),
                type=found,
                type_text=self._spelling(node, declarator, inner),
                node=node,
                declarator=declarator,
                start=inner.start_byte,
                scope=(scope_node.start_byte, scope_node.end_byte),
            )

    def _spelling(self, node: Node, declarator: Node, inner: Node) -> str:
        """The declaration's text before the name, with other declarators left out."""
        first = node.child_by_field_name("declarator")
        assert first is not None
        head = self._tree.span(node.start_byte, first.start_byte)
        stars = self._tree.span(declarator.start_byte, inner.start_byte)
        return " ".join((head + stars).split())

    def parameters(self, function: Node) -> list[Declared]:
        """The declared parameters of a function, in order."""
        known = self._parameters.get(function.id)
        if known is None:
            known = self._parameters[function.id] = self._find_parameters(function)
        return known

    def _find_parameters(self, function: Node) -> list[Declared]:
        declarator = function.child_by_field_name("declarator")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator")
        listed = declarator.child_by_field_name("parameters") if declarator else None
        found: list[Declared] = []
        for node in listed.named_children if listed else ():
            if node.type in ("parameter_declaration", "optional_parameter_declaration"):
                found.extend(self._declarators(node))
        return found

    def spelled(self, function: Node, name: str) -> str | None:
        """The spelled type of the first declaration of ``name`` inside ``function``."""
        for declared in self._declared.get(name, ()):
            if function.start_byte <= declared.start < function.end_byte:
                return declared.type_text
        return None

    def declarations(self, name: str) -> tuple[Declared, ...]:
        """All declarations of ``name``, in source order."""
        return tuple(self._declared.get(name, ()))

    def lookup(self, identifier: Node) -> Declared | None:
        """The declaration an identifier refers to: the innermost that precedes it."""
        at = identifier.start_byte
        visible = [
            d
            for d in self._declared.get(self._tree.text(identifier), ())
            if d.scope[0] <= at < d.scope[1] and d.start <= at
        ]
        return min(visible, key=lambda d: (d.scope[1] - d.scope[0], -d.start), default=None)

    # -- expressions --------------------------------------------------------------------------

    def of(self, node: Node) -> CType:
        """The static type of an expression; ``UNKNOWN`` where it cannot be told."""
        known = self._cache.get(node.id)
        if known is None:
            known = self._infer(node)
            self._cache[node.id] = known
        return known

    def _field(self, node: Node, name: str) -> CType:
        child = node.child_by_field_name(name)
        return self.of(child) if child is not None else UNKNOWN

    def _infer(self, node: Node) -> CType:
        match node.type:
            case "identifier":
                return self._identifier(node)
            case "number_literal":
                return literal_type(self._tree.text(node))
            case "char_literal":
                return INT
            case "true" | "false":
                return BOOL
            case "parenthesized_expression" | "condition_clause":
                return self.of(node.named_children[0])
            case "binary_expression":
                return self._binary(node)
            case "unary_expression":
                if self._operator(node) == "!":
                    return BOOL
                inner = self._field(node, "argument")
                return INT if inner.kind == "bool" else inner
            case "update_expression":
                return self._field(node, "argument")
            case "assignment_expression":
                return self._field(node, "left")
            case "comma_expression":
                return self._field(node, "right")
            case "conditional_expression":
                one, two = self._field(node, "consequence"), self._field(node, "alternative")
                return one if one == two else promote(one, two)
            case "subscript_expression":
                return self._field(node, "argument").pointee()
            case "pointer_expression":
                inner = self._field(node, "argument")
                return inner.pointer() if self._operator(node) == "&" else inner.pointee()
            case "field_expression":
                return self._member(node)
            case "cast_expression":
                spelled = node.child_by_field_name("type")
                return parse_type(self._tree.text(spelled)) if spelled else UNKNOWN
            case "sizeof_expression":
                return LONG
            case "call_expression":
                return self._call(node)
            case _:
                return UNKNOWN

    def _operator(self, node: Node) -> str:
        operator = node.child_by_field_name("operator")
        return self._tree.text(operator) if operator is not None else ""

    def _identifier(self, node: Node) -> CType:
        declared = self.lookup(node)
        if declared is not None:
            return declared.type
        name = self._tree.text(node)
        return self._macros.get(name) or NAMED_CONSTANTS.get(name, UNKNOWN)

    def _binary(self, node: Node) -> CType:
        operator = self._operator(node)
        if operator in _COMPARISONS:
            return BOOL
        left, right = self._field(node, "left"), self._field(node, "right")
        if operator in _SHIFTS:
            return INT if left.kind == "bool" else left
        if left.depth and right.depth:
            return LONG  # a difference of pointers
        promoted = promote(left, right)
        return INT if promoted.kind == "bool" else promoted

    def _member(self, node: Node) -> CType:
        argument, field = (node.child_by_field_name(f) for f in ("argument", "field"))
        if argument is None or field is None:
            return UNKNOWN
        if self._tree.text(argument) in _COORDINATES:
            return INT
        base = self.of(argument).base
        if base in self._members:
            return self._members[base].get(self._tree.text(field), UNKNOWN)
        if base == "dim3":
            return INT
        return member_type(base) or UNKNOWN

    def _call(self, node: Node) -> CType:
        function, arguments = (node.child_by_field_name(f) for f in ("function", "arguments"))
        if function is None:
            return UNKNOWN
        given = arguments.named_children if arguments is not None else []
        if function.type == "primitive_type":
            return parse_type(self._tree.text(function))
        name = self._tree.text(function)
        if function.type == "template_function":
            plain = function.child_by_field_name("name")
            types = function.child_by_field_name("arguments")
            name = self._tree.text(plain) if plain is not None else name
            if name in _CASTS and types is not None and types.named_children:
                return parse_type(self._tree.text(types.named_children[0]))
        if name in self._returns:
            return self._returns[name]
        if name in SAME_AS_ARGUMENT and len(given) > SAME_AS_ARGUMENT[name]:
            return self.of(given[SAME_AS_ARGUMENT[name]])
        if name in READS_POINTER and given:
            return self.of(given[0]).pointee()
        if name in ("min", "max") and len(given) == 2:
            return promote(self.of(given[0]), self.of(given[1]))
        return call_type(name)


def _unwrap(declarator: Node) -> tuple[Node, int]:
    """The declared name's node and the pointer and array levels around it."""
    depth = 0
    while True:
        if declarator.type in ("pointer_declarator", "array_declarator"):
            depth += 1
        inner = declarator.child_by_field_name("declarator")
        if inner is None and declarator.type == "reference_declarator":
            inner = next((c for c in declarator.named_children if c.type != "type_qualifier"), None)
        if inner is None:
            return declarator, depth
        declarator = inner
