"""The syntax tree of one kernel source, with the questions that mutation rules ask of it.

A kernel source is one ``.cu`` text: device code and one host function ``launch``. All positions
are byte offsets into ``KernelTree.data``. Rules ask for nodes of *device code* or of the
launcher, for the static kind of an expression, and for its role: does it feed an address
(:meth:`KernelTree.is_index`), is it a bound test (:meth:`KernelTree.is_bound`)?
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import merge
from itertools import chain

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from kernelassay.errors import KernelSyntaxError
from kernelassay.mutation.inference import Declared, Types
from kernelassay.mutation.nodes import field
from kernelassay.mutation.roles import Roles
from kernelassay.mutation.rule import Edit
from kernelassay.mutation.rule import mutation as mutation  # noqa: PLC0414  (rules take all their helpers here)

# The grammar does not know `__align__(16)`; blanks of the same length keep every offset.
_ALIGN = re.compile(rb"__align__\s*\([^()]*\)")


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """One ``kernel<<<grid, block, shared>>>(arguments)`` of the launcher."""

    node: Node
    kernel: str
    config: tuple[Node, ...]
    arguments: tuple[Node, ...]

    @property
    def grid(self) -> Node:
        """The expression of the grid's size."""
        return self.config[0]

    @property
    def block(self) -> Node:
        """The expression of the block's size."""
        return self.config[1]

    @property
    def shared(self) -> Node | None:
        """The expression of the dynamic shared memory in bytes, if there is one."""
        return self.config[2] if len(self.config) > 2 else None


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function; ``type_text`` is its spelled type without the name."""

    name: str
    type_text: str
    is_pointer: bool
    kind: str
    node: Node


@lru_cache(maxsize=1)
def _language() -> Language:
    return Language(tree_sitter_cuda.language())


class KernelTree:
    """A parsed kernel source.

    Raises :class:`~kernelassay.errors.KernelSyntaxError` for a text that does not parse, has no
    ``__global__`` kernel, or has not exactly one host function ``launch``.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.data = source.encode()
        blanked = _ALIGN.sub(lambda match: b" " * len(match.group()), self.data)
        self.root: Node = Parser(_language()).parse(blanked).root_node
        self._refuse_errors()
        self._parents: dict[int, Node] = {}
        # A subtree is a run of the pre-order; the positions of each type are kept for searches.
        self._all = tuple(_preorder(self.root))
        self._position: dict[int, int] = {}
        self._of_type: dict[str, list[int]] = {}
        for position, node in enumerate(self._all):
            self._position[node.id] = position
            self._of_type.setdefault(node.type, []).append(position)
            for child in node.children:
                self._parents[child.id] = node
        functions = [self._all[i] for i in self._of_type.get("function_definition", ())]
        self.kernels = tuple(f for f in functions if _has_qualifier(f, "__global__"))
        self.device_functions = tuple(
            f
            for f in functions
            if _has_qualifier(f, "__device__") and not _has_qualifier(f, "__global__")
        )
        self.launcher = self._only_launcher(functions)
        self._types = Types(self)
        self._roles = Roles(self, self._types)

    # -- construction ---------------------------------------------------------------------

    def _refuse_errors(self) -> None:
        if not self.root.has_error:
            return
        for node in _preorder(self.root):
            if node.is_error or node.is_missing:
                line = node.start_point[0] + 1
                shown = self.data[node.start_byte : node.end_byte].decode(errors="replace")
                what = f"missing {node.type!r}" if node.is_missing else f"unexpected {shown[:60]!r}"
                raise KernelSyntaxError(
                    f"the kernel source does not parse: {what}",
                    where=f"line {line}",
                    hint="mutation needs a source that tree-sitter-cuda parses without an error",
                )

    def _only_launcher(self, functions: list[Node]) -> Node:
        if not self.kernels:
            raise KernelSyntaxError(
                "the kernel source has no __global__ kernel",
                hint='write the kernel as `extern "C" __global__ void name(...) { ... }`',
            )
        device = {f.id for f in (*self.kernels, *self.device_functions)}
        found = [f for f in functions if f.id not in device and self.name(f) == "launch"]
        if len(found) != 1:
            lines = ", ".join(str(f.start_point[0] + 1) for f in found)
            where = f"lines {lines}" if found else ""
            raise KernelSyntaxError(
                f"the kernel source needs exactly one host function `launch`, it has {len(found)}",
                where=where,
                hint="write `void launch(<pointers>, <scalars>) { kernel<<<grid, block>>>(...); }`",
            )
        return found[0]

    # -- structure ------------------------------------------------------------------------

    def text(self, node: Node) -> str:
        """The source text of ``node``."""
        return self.data[node.start_byte : node.end_byte].decode()

    def span(self, start: int, end: int) -> str:
        """The source text of the bytes ``[start, end)``."""
        return self.data[start:end].decode()

    def line(self, node: Node) -> int:
        """The 1-based line where ``node`` starts."""
        return int(node.start_point[0]) + 1

    def parent(self, node: Node) -> Node | None:
        """The node around ``node``; None for the root."""
        return self._parents.get(node.id)

    def ancestors(self, node: Node) -> Iterator[Node]:
        """The nodes around ``node``, innermost first."""
        current = self._parents.get(node.id)
        while current is not None:
            yield current
            current = self._parents.get(current.id)

    def enclosing(self, node: Node, *types: str) -> Node | None:
        """The innermost node strictly around ``node`` that has one of ``types``."""
        return next((a for a in self.ancestors(node) if a.type in types), None)

    def function(self, node: Node) -> Node:
        """The function definition that ``node`` is or lies in."""
        if node.type == "function_definition":
            return node
        found = self.enclosing(node, "function_definition")
        if found is None:
            raise KernelSyntaxError(
                f"{self.text(node)[:40]!r} lies in no function", where=f"line {self.line(node)}"
            )
        return found

    @cached_property
    def _device_parts(self) -> tuple[Node, ...]:
        # The declarator and the body: `__launch_bounds__(256)` is no code.
        functions = sorted((*self.kernels, *self.device_functions), key=lambda f: f.start_byte)
        return tuple(field(f, part) for f in functions for part in ("declarator", "body"))

    def _search(self, part: Node, types: tuple[str, ...]) -> Iterator[Node]:
        first = self._position[part.id]
        end = first + part.descendant_count
        if not types:
            return iter(self._all[first:end])
        runs = [self._of_type.get(kind, []) for kind in set(types)]
        hits = [run[bisect_left(run, first) : bisect_left(run, end)] for run in runs]
        return (self._all[position] for position in merge(*hits))

    def nodes(self, *types: str, within: Node | None = None) -> Iterator[Node]:
        """Nodes of ``types`` (all, if none given), pre-order, which is source order.

        ``within`` None means device code: kernels and ``__device__`` functions.
        """
        parts = self._device_parts if within is None else (within,)
        return chain.from_iterable(self._search(part, types) for part in parts)

    def launch_nodes(self, *types: str) -> Iterator[Node]:
        """The same inside the body of ``launch``."""
        return self._search(field(self.launcher, "body"), types)

    @cached_property
    def _launches(self) -> tuple[LaunchSite, ...]:
        sites = []
        for call in self.launch_nodes("call_expression"):
            syntax = next((c for c in call.children if c.type == "kernel_call_syntax"), None)
            if syntax is None:
                continue
            config = tuple(syntax.named_children)
            if len(config) < 2:
                raise KernelSyntaxError(
                    "a launch needs a grid and a block",
                    where=f"line {self.line(call)}",
                    hint="write `kernel<<<grid, block>>>(...)`",
                )
            arguments = call.child_by_field_name("arguments")
            sites.append(
                LaunchSite(
                    node=call,
                    kernel=self.text(field(call, "function")),
                    config=config,
                    arguments=tuple(arguments.named_children) if arguments else (),
                )
            )
        return tuple(sites)

    def launches(self) -> tuple[LaunchSite, ...]:
        """The launches of ``launch`` in source order."""
        return self._launches

    # -- names and types ------------------------------------------------------------------

    def name(self, function: Node) -> str:
        """The name of a function definition."""
        declarator = function.child_by_field_name("declarator")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator")
        inner = declarator.child_by_field_name("declarator") if declarator else None
        return self.text(inner) if inner else ""

    def parameters(self, function: Node) -> tuple[Parameter, ...]:
        """The parameters of a function definition, in order."""
        return tuple(
            Parameter(
                name=declared.name,
                type_text=declared.type_text,
                is_pointer=declared.type.depth > 0,
                kind=declared.type.kind,
                node=declared.node,
            )
            for declared in self._types.parameters(function)
        )

    def size_parameters(self, function: Node) -> tuple[str, ...]:
        """The names of the integer scalar parameters, in order."""
        return tuple(p.name for p in self.parameters(function) if p.kind in ("int", "long"))

    def declared_type(self, function: Node, name: str) -> str | None:
        """The spelled type of a parameter or local of ``function`` (its first declaration)."""
        return self._types.spelled(function, name)

    def declared(self, identifier: Node) -> Declared | None:
        """The declaration an identifier refers to; None for macros, built-ins and functions."""
        return self._types.lookup(identifier)

    def declarations(self, name: str) -> tuple[Declared, ...]:
        """All declarations of ``name`` anywhere in the source, in order."""
        return self._types.declarations(name)

    def kind(self, node: Node) -> str:
        """The static type of an expression, one of ``cuda_types.KINDS``."""
        return self._types.of(node).kind

    def base_type(self, node: Node) -> str:
        """The base type of an expression without pointer levels (``float4`` for a float4*)."""
        return self._types.of(node).base

    def is_float(self, node: Node) -> bool:
        """Whether an expression is a floating-point scalar of any width."""
        return self.kind(node) in ("float", "half", "double")

    def is_integer(self, node: Node) -> bool:
        """Whether an expression is an integer scalar (no bool)."""
        return self.kind(node) in ("int", "long")

    # -- roles ----------------------------------------------------------------------------

    def is_index(self, node: Node) -> bool:
        """Whether an expression feeds an address.

        It lies in a subscript, in pointer arithmetic, or in the initialiser or update of an
        integer variable that is, directly or through others, used in one.
        """
        return self._roles.is_index(node)

    def is_index_variable(self, function: Node, name: str) -> bool:
        """Whether the integer variable ``name`` of ``function`` feeds an address."""
        return self._roles.is_index_variable(function, name)

    def is_bound(self, node: Node) -> bool:
        """Whether ``node`` is a bound test.

        That is an integer comparison in a loop condition, or an ordering of integers of which
        one is an index, a thread coordinate or a size.
        """
        return self._roles.is_bound(node)


def _preorder(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def _has_qualifier(function: Node, qualifier: str) -> bool:
    return any(child.type == qualifier for child in function.children)


def replace(target: Node | tuple[int, int], text: str) -> Edit:
    """The edit that puts ``text`` in place of a node or of a byte span."""
    start, end = target if isinstance(target, tuple) else (target.start_byte, target.end_byte)
    return Edit(start, end, text)


def insert(position: int, text: str) -> Edit:
    """The edit that inserts ``text`` before the byte ``position``."""
    return Edit(position, position, text)


def delete(target: Node | tuple[int, int]) -> Edit:
    """The edit that removes a node or a byte span."""
    return replace(target, "")
