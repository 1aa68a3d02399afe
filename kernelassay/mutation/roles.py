"""What an integer expression is for: an address, a bound, or a value.

Index arithmetic, bounds and values belong to different fault families, so rules have to tell
them apart. A variable is an *index variable* when its value reaches a subscript or pointer
arithmetic, directly, through other integer variables, or through the parameters and the result
of ``__device__`` functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tree_sitter import Node

if TYPE_CHECKING:
    from kernelassay.mutation.inference import Types
    from kernelassay.mutation.tree import KernelTree

_ORDERINGS = frozenset({"<", ">", "<=", ">="})
_COMPARISONS = _ORDERINGS | {"==", "!="}
_COORDINATES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
_INTEGERS = ("int", "long")
_Variable = tuple[int, str]  # the declaration's byte offset, the name


class Roles:
    """Index variables and bound tests of one kernel source."""

    def __init__(self, tree: KernelTree, types: Types) -> None:
        self._tree = tree
        self._types = types
        self._variables: set[_Variable] = set()
        self._returning: set[str] = set()
        self._functions = {tree.name(f): f for f in tree.device_functions}
        self._close()

    def _close(self) -> None:
        """The least fixed point: names inside index expressions are index variables."""
        names = [
            node
            for node in self._tree.nodes("identifier")
            if self._types.of(node).kind in _INTEGERS
        ]
        calls = [
            node
            for node in self._tree.nodes("call_expression")
            if self._called(node) in self._functions
        ]
        size = -1
        while size != len(self._variables) + len(self._returning):
            size = len(self._variables) + len(self._returning)
            for node in names:
                variable = self._variable(node)
                if variable and variable not in self._variables and self._feeds(node):
                    self._variables.add(variable)
            self._returning.update(
                self._called(call)
                for call in calls
                if self._types.of(call).kind in _INTEGERS and self._feeds(call)
            )

    def _called(self, call: Node) -> str:
        function = call.child_by_field_name("function")
        if function is not None and function.type == "template_function":
            function = function.child_by_field_name("name")
        return self._tree.text(function) if function is not None else ""

    def _variable(self, identifier: Node) -> _Variable | None:
        declared = self._types.lookup(identifier)
        return (declared.start, declared.name) if declared is not None else None

    def _is_variable(self, node: Node | None) -> bool:
        return (
            node is not None
            and node.type == "identifier"
            and self._variable(node) in self._variables
        )

    def _feeds(self, node: Node) -> bool:
        """Whether the value of ``node`` reaches an address, given the variables known so far."""
        below = node
        for above in self._tree.ancestors(node):
            match above.type:
                case "subscript_argument_list":
                    return True
                case "binary_expression":
                    if self._is_offset(above, below):
                        return True
                    operator = above.child_by_field_name("operator")
                    if operator is not None and self._tree.text(operator) in _COMPARISONS:
                        return False
                case "update_expression":
                    if self._is_variable(above.child_by_field_name("argument")):
                        return True
                case "init_declarator":
                    declarator = above.child_by_field_name("declarator")
                    while declarator is not None and declarator.type == "reference_declarator":
                        declarator = declarator.named_children[-1]
                    return below.id != _id(declarator) and self._is_variable(declarator)
                case "assignment_expression":
                    target = above.child_by_field_name("left")
                    if below.id == _id(target):
                        return False
                    if self._is_variable(target) or self._moves_pointer(above):
                        return True
                case "argument_list":
                    if self._is_index_argument(above, below):
                        return True
                case "return_statement":
                    return self._tree.name(self._tree.function(above)) in self._returning
                case kind if kind.endswith("_statement") or kind == "declaration":
                    return False
            below = above
        return False

    def _is_offset(self, sum_: Node, side: Node) -> bool:
        return self._types.of(sum_).kind == "pointer" and self._types.of(side).kind in _INTEGERS

    def _moves_pointer(self, assignment: Node) -> bool:
        left, operator = (assignment.child_by_field_name(f) for f in ("left", "operator"))
        return (
            left is not None
            and operator is not None
            and self._tree.text(operator) in ("+=", "-=")
            and self._types.of(left).kind == "pointer"
        )

    def _is_index_argument(self, arguments: Node, argument: Node) -> bool:
        call = self._tree.parent(arguments)
        function = self._functions.get(self._called(call)) if call is not None else None
        if function is None:
            return False
        position = next(
            (i for i, given in enumerate(arguments.named_children) if given.id == argument.id), -1
        )
        parameters = self._types.parameters(function)
        if not 0 <= position < len(parameters):
            return False
        declared = parameters[position]
        return (declared.start, declared.name) in self._variables

    def is_index_variable(self, function: Node, name: str) -> bool:
        """Whether some integer variable ``name`` declared in ``function`` feeds an address."""
        return any(
            name == known and function.start_byte <= start < function.end_byte
            for start, known in self._variables
        )

    def is_index(self, node: Node) -> bool:
        """Whether an expression, or the variable it names, feeds an address here."""
        return self._feeds(node)

    def is_bound(self, node: Node) -> bool:
        """Whether ``node`` is an integer comparison that bounds a loop or guards an access."""
        if node.type != "binary_expression":
            return False
        left, operator, right = (node.child_by_field_name(f) for f in ("left", "operator", "right"))
        if left is None or operator is None or right is None:
            return False
        if self._types.of(left).kind not in _INTEGERS:
            return False
        if self._types.of(right).kind not in _INTEGERS:
            return False
        symbol = self._tree.text(operator)
        if symbol in _COMPARISONS and self._in_loop_condition(node):
            return True
        return symbol in _ORDERINGS and (self._is_extent(left) or self._is_extent(right))

    def _in_loop_condition(self, node: Node) -> bool:
        below = node
        for above in self._tree.ancestors(node):
            if above.type in ("for_statement", "while_statement", "do_statement"):
                return below.id == _id(above.child_by_field_name("condition"))
            if above.type.endswith("_statement"):
                return False
            below = above
        return False

    def _is_extent(self, node: Node) -> bool:
        """Whether an expression names an index variable, a thread coordinate or a size."""
        sizes = set(self._tree.size_parameters(self._tree.function(node)))
        for inner in self._tree.nodes("identifier", within=node):
            name = self._tree.text(inner)
            if name in _COORDINATES or name in sizes or self._is_variable(inner):
                return True
        return self._from_coordinates(node)

    def _from_coordinates(self, node: Node) -> bool:
        """Whether a variable of ``node`` is initialised from a thread coordinate (a lane id)."""
        for inner in self._tree.nodes("identifier", within=node):
            declared = self._types.lookup(inner)
            if declared is None:
                continue
            for part in self._tree.nodes("identifier", within=declared.node):
                if self._tree.text(part) in _COORDINATES:
                    return True
        return False


def _id(node: Node | None) -> int:
    return node.id if node is not None else -1
