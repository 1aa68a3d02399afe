"""What the variables of a jit function hold, by what is assigned to them.

The analysis goes by names, one function at a time, and knows no order of statements: a name has
the highest kind of all that is assigned to it. Kinds, lowest first:

- ``mask``: the outcome of a comparison;
- ``int``: an index, an offset, a size, a program's number;
- ``scalar``: a number that is no index, such as a scale or an epsilon;
- ``value``: a tile of data: loaded, or computed from such tiles;
- ``pointer``: an address.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from kernelassay.mutation.triton.match import (
    argument,
    binary,
    comparison,
    names,
    operator,
    terms,
    value,
)
from kernelassay.mutation.triton.tree import JitFunction, TritonTree

KINDS = ("", "mask", "int", "scalar", "value", "pointer")

_INT_CALLS = ("arange", "program_id", "num_programs", "cdiv", "multiple_of", "max_contiguous")
_TILES = ("zeros", "full", "zeros_like", "full_like", "dot")
_ATOMICS = tuple(f"atomic_{op}" for op in ("add", "max", "min", "and", "or", "xor", "xchg", "cas"))
_ACCESSES = ("load", "store", *_ATOMICS)
_SAME = ("sum", "max", "min", "trans", "reshape", "broadcast_to", "expand_dims", "ravel", "view")


@dataclass(frozen=True, slots=True)
class Assignment:
    """One ``name = value``, ``name += value`` (``sign`` is its operator) or loop variable."""

    name: str
    node: cst.CSTNode
    value: cst.BaseExpression
    sign: str = ""

    @property
    def is_loop_variable(self) -> bool:
        """Whether the name is a ``for``'s variable and the value what it runs over."""
        return isinstance(self.node, cst.For)


@dataclass(frozen=True, slots=True)
class Carried:
    """A variable that a loop carries: set before it, and updated in it.

    ``updates`` are its assignments in the outermost such loop, ``initial`` the last one before.
    """

    name: str
    loop: cst.CSTNode
    initial: Assignment
    updates: tuple[Assignment, ...]


class Values:
    """The kinds and the flow of the values of one jit function."""

    def __init__(self, tree: TritonTree, function: JitFunction) -> None:
        self.tree = tree
        self.function = function
        self.assignments = tuple(self._assigned())
        self._of_name: dict[str, list[Assignment]] = {}
        for assignment in self.assignments:
            self._of_name.setdefault(assignment.name, []).append(assignment)
        self.pointers = self._pointer_parameters()
        self.indices = self._index_names()
        self._kinds = self._kinds_of_names()
        compared = self._compared_with_indices()
        if compared - self.indices:
            self.indices |= compared
            self._kinds = self._kinds_of_names()

    # -- flow -----------------------------------------------------------------------------

    def _assigned(self) -> Iterator[Assignment]:
        kinds = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.For)
        for node in self.tree.nodes(*kinds, within=self.function.node.body):
            if isinstance(node, cst.For):
                if isinstance(node.target, cst.Name):
                    yield Assignment(node.target.value, node, node.iter)
                continue
            targets = [t.target for t in node.targets] if isinstance(node, cst.Assign) else []
            if isinstance(node, cst.AnnAssign | cst.AugAssign):
                targets = [node.target]
            given = node.value
            for target, part in _paired(targets, given):
                if isinstance(target, cst.Name):
                    sign = operator(node) or "?" if isinstance(node, cst.AugAssign) else ""
                    yield Assignment(target.value, node, part, sign)

    def assigned(self, name: str) -> tuple[Assignment, ...]:
        """All assignments to a name, in source order."""
        return tuple(self._of_name.get(name, ()))

    def sources(self, node: cst.CSTNode) -> frozenset[str]:
        """All names that an expression depends on, directly or through others."""
        found: set[str] = set()
        waiting = names(self.tree, node)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                for assignment in self.assigned(name):
                    waiting += names(self.tree, assignment.value)
        return frozenset(found)

    @cached_property
    def carried(self) -> tuple[Carried, ...]:
        """The variables that loops carry, in the order of their first update."""
        found = []
        for name, group in self._of_name.items():
            loop = next((o for a in group if (o := self._outermost_loop(a)) is not None), None)
            before = [
                a
                for a in group
                if loop is not None
                and self.tree.span(a.node)[0] < self.tree.span(loop)[0]
                and self._outermost_loop(a) is None
            ]
            if loop is None or not before or before[-1].sign:
                continue
            inside = tuple(a for a in group if self._outermost_loop(a) is loop)
            if not any(a.is_loop_variable for a in inside):
                found.append(Carried(name, loop, before[-1], inside))
        return tuple(sorted(found, key=lambda c: self.tree.span(c.updates[0].node)))

    def _outermost_loop(self, assignment: Assignment) -> cst.CSTNode | None:
        loops = [
            outer
            for outer in self.tree.ancestors(assignment.node)
            if isinstance(outer, cst.For | cst.While)
        ]
        inside = [o for o in loops if self.function.node in self.tree.ancestors(o)]
        return inside[-1] if inside else None

    # -- addresses ------------------------------------------------------------------------

    def accesses(self) -> Iterator[cst.Call]:
        """The loads, stores and atomics of the function."""
        return self.tree.calls(*_ACCESSES, within=self.function.node.body)

    def _pointer_parameters(self) -> frozenset[str]:
        found = set()
        for call in self.accesses():
            address = value(call, 0, "pointer")
            if address is not None:
                base = self.base(address)
                found.update([base] if base else [])
        return frozenset(found)

    def base(self, address: cst.BaseExpression) -> str:
        """The pointer parameter an address starts from, ``""`` if none is found.

        Of several parameters in a sum it is the first with ``ptr`` in its name, or the first.
        """
        candidates = list(self._bases(address, frozenset()))
        named = [c for c in candidates if "ptr" in c.lower()]
        return next(iter([*named, *candidates]), "")

    def _bases(self, address: cst.BaseExpression, seen: frozenset[str]) -> Iterator[str]:
        for term in terms(address):
            if binary(term, "-"):
                yield from self._bases(term.left, seen)
            if not isinstance(term, cst.Name) or term.value in seen:
                continue
            name = term.value
            if name in self.function.parameters and name not in self.function.constexprs:
                yield name
            for assignment in self.assigned(name):
                yield from self._bases(assignment.value, seen | {name})

    def _index_names(self) -> frozenset[str]:
        """The names that addresses, their masks, ranges and shapes are made of."""
        seeds: list[cst.BaseExpression | None] = []
        for call in self.accesses():
            position = {"load": 1, "store": 2}.get(self.tree.callee(call))
            seeds += [value(call, 0, "pointer"), value(call, position, "mask")]
        for call in self.tree.calls("arange", within=self.function.node.body):
            seeds += [value(call, 0, "start"), value(call, 1, "end")]
        for call in self.tree.calls("zeros", "full", within=self.function.node.body):
            seeds.append(value(call, 0, "shape"))
        for loop in self.tree.nodes(cst.For, within=self.function.node.body):
            seeds.append(loop.iter)
        found: set[str] = set()
        for seed in seeds:
            found |= self.sources(seed) if seed is not None else set()
        return frozenset(found - self.pointers)

    def _compared_with_indices(self) -> frozenset[str]:
        """The parameters that are compared with an index: sizes, also of a mask of values."""
        found = set()
        for node in self.tree.nodes(cst.Comparison, within=self.function.node.body):
            sides = comparison(node)
            for one, other in ((sides[0], sides[2]), (sides[2], sides[0])) if sides else ():
                indexed = self.kind(one) == "int" and names(self.tree, one)
                if indexed and isinstance(other, cst.Name):
                    found.add(other.value)
        return frozenset(found & set(self.function.parameters)) - self.pointers

    # -- kinds ----------------------------------------------------------------------------

    def _kinds_of_names(self) -> dict[str, str]:
        kinds: dict[str, str] = {}
        for name in self.function.parameters:
            index = "int" if name in self.indices else "scalar"
            kinds[name] = "pointer" if name in self.pointers else index
        self._kinds = kinds
        for _ in range(len(self.assignments) + 1):
            before = dict(kinds)
            for a in self.assignments:
                found = "int" if a.is_loop_variable else self.kind(a.value)
                kinds[a.name] = _highest(kinds.get(a.name, ""), found)
            if kinds == before:
                break
        return kinds

    def kind(self, node: cst.BaseExpression | None) -> str:
        """The kind of an expression; ``""`` for one that is none, as a string or a dtype."""
        if isinstance(node, cst.Name):
            return self._kind_of_name(node.value)
        if isinstance(node, cst.Integer):
            return "int"
        if isinstance(node, cst.Float):
            return "scalar"
        if isinstance(node, cst.Comparison):
            return "mask"
        if isinstance(node, cst.UnaryOperation):
            return self.kind(node.expression)
        if isinstance(node, cst.Subscript):
            return self.kind(node.value)
        if isinstance(node, cst.IfExp):
            return _highest(self.kind(node.body), self.kind(node.orelse))
        if isinstance(node, cst.BooleanOperation):
            return _highest(self.kind(node.left), self.kind(node.right))
        if isinstance(node, cst.BinaryOperation):
            return self._binary_kind(node)
        return self._call_kind(node) if isinstance(node, cst.Call) else ""

    def _kind_of_name(self, name: str) -> str:
        if name in self._kinds or name in self._of_name or name in ("None", "True", "False"):
            return self._kinds.get(name, "")
        return "int" if name in self.indices else "scalar"  # a constant of the module

    def _binary_kind(self, node: cst.BinaryOperation) -> str:
        found = _highest(self.kind(node.left), self.kind(node.right))
        if operator(node) == "/":
            return _highest(found, "scalar")
        return found

    def _call_kind(self, call: cst.Call) -> str:
        name, method = self.tree.callee(call), self.tree.method(call)
        if method == "to":
            inner, dtype = self.kind(call.func.value), self.tree.text(call)
            return "int" if "int" in dtype.rpartition(".to(")[2] else _highest(inner, "scalar")
        if method:
            return self.kind(call.func.value)
        if name in _INT_CALLS:
            return "int"
        if name in ("load", *_ATOMICS):
            holder = self.tree.parent(call)
            # A loaded number that addresses are made of is an index.
            target = holder.targets[0].target if isinstance(holder, cst.Assign) else None
            is_index = isinstance(target, cst.Name) and target.value in self.indices
            return "int" if is_index else "value"
        if name in _TILES:
            given = argument(call, 2 if name == "full" else 1, "dtype")
            return "int" if given is not None and "int" in self.tree.text(given) else "value"
        if name == "where":
            return _highest(self.kind(value(call, 1, "x")), self.kind(value(call, 2, "y")))
        if name in _SAME:
            return self.kind(value(call, 0, "input"))
        if not name and self.tree.jit_called(call) is None:
            return "scalar" if self.tree.text(call).startswith("float(") else ""
        found = ""
        for arg in call.args:
            found = _highest(found, self.kind(arg.value))
        return found if name in ("maximum", "minimum", "abs") else _highest(found, "scalar")

    def is_number(self, node: cst.BaseExpression | None) -> bool:
        """Whether an expression is of kind ``value`` or ``scalar``: no index and no mask."""
        return self.kind(node) in ("value", "scalar")

    def is_bound(self, node: cst.CSTNode) -> bool:
        """Whether a comparison orders indices: a mask of an access, or of a causal tile."""
        sides = comparison(node)
        if sides is None or sides[1] not in ("<", "<=", ">", ">="):
            return False
        return self.kind(sides[0]) == self.kind(sides[2]) == "int"


def _paired(
    targets: list[cst.BaseExpression], given: cst.BaseExpression | None
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Targets with what each is given: ``a, b = 1, 2`` are two assignments."""
    for target in targets if given is not None else ():
        if not isinstance(target, cst.Tuple):
            yield target, given
            continue
        parts = given.elements if isinstance(given, cst.Tuple) else ()
        alike = len(parts) == len(target.elements)
        for position, element in enumerate(target.elements):
            yield element.value, parts[position].value if alike else given


def _highest(one: str, other: str) -> str:
    return max(one, other, key=KINDS.index)


def values_of(tree: TritonTree, node: cst.CSTNode) -> Values:
    """The values of the jit function that a node lies in; a tree keeps them."""
    function = tree.function(node)
    found = tree.kept.get(function.node)
    if not isinstance(found, Values):
        found = tree.kept[function.node] = Values(tree, function)
    return found


def all_values(tree: TritonTree) -> Iterator[Values]:
    """The values of each jit function, in source order."""
    return (values_of(tree, function.node.body) for function in tree.functions)
