"""The syntax tree of one Python module with Triton kernels, as mutation rules ask of it.

A source is one module text: ``@triton.jit`` functions (*device code*) and what launches them
(*host code*). All positions are byte offsets into ``TritonTree.data``. The span of a node leaves
out the parentheses around it (:meth:`TritonTree.full` has them), so that putting a text in place
of a node keeps them.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import merge
from itertools import chain

import libcst as cst
from libcst.metadata import (
    ByteSpanPositionProvider,
    MetadataWrapper,
    ParentNodeProvider,
    QualifiedNameProvider,
)

from kernelassay.errors import KernelSyntaxError, UnsupportedError

_LANGUAGE = "triton.language."
_JIT = ("triton.jit", "triton.runtime.jit", "triton.runtime.jit.jit")
_BLANK = (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine, cst.Newline)


@dataclass(frozen=True, slots=True)
class JitFunction:
    """One ``@triton.jit`` function; ``constexprs`` are the parameters that are compile-time."""

    name: str
    node: cst.FunctionDef
    parameters: tuple[str, ...]
    constexprs: frozenset[str]


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """One ``kernel[grid](arguments)`` of host code."""

    node: cst.Call
    kernel: JitFunction
    grid: cst.BaseExpression

    @property
    def arguments(self) -> tuple[cst.Arg, ...]:
        """The launch's arguments, launch options such as ``num_warps`` among them."""
        return tuple(self.node.args)


class TritonTree:
    """A parsed module.

    Raises :class:`~kernelassay.errors.KernelSyntaxError` for a text that is no Python module, and
    :class:`~kernelassay.errors.UnsupportedError` for one without a ``@triton.jit`` function.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.data = source.encode()
        # libcst reads the bytes itself and drops a byte order mark; every offset must be ours.
        if source.startswith("\ufeff"):
            raise UnsupportedError(
                "the module starts with a byte order mark", hint="save the file without it"
            )
        wrapper = MetadataWrapper(_parsed(source))
        self._module = wrapper.module
        self._spans = wrapper.resolve(ByteSpanPositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)
        self._names = wrapper.resolve(QualifiedNameProvider)
        self._qualified: dict[cst.CSTNode, str] = {}
        self._index()
        self.functions = tuple(self._jit_functions())
        if not self.functions:
            raise UnsupportedError(
                "the module has no @triton.jit function",
                hint="decorate the kernel with @triton.jit, imported from triton",
            )
        #: What analyses of jit functions keep.
        self.kept: dict[object, object] = {}
        self._by_name = {function.name: function for function in self.functions}

    # -- text -----------------------------------------------------------------------------

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """The bytes of ``node`` without the parentheses around it."""
        found = self._spans[node]
        return found.start, found.start + found.length

    def text(self, node: cst.CSTNode) -> str:
        """The source text of ``node`` without the parentheses around it."""
        start, end = self.span(node)
        return self.data[start:end].decode()

    def full_span(self, node: cst.CSTNode) -> tuple[int, int]:
        """The bytes of ``node`` with the parentheses around it."""
        start, end = self.span(node)
        left, right = getattr(node, "lpar", ()), getattr(node, "rpar", ())
        start -= sum(self._length(part) for part in left)
        return start, end + sum(self._length(part) for part in right)

    def full(self, node: cst.CSTNode) -> str:
        """The source text of ``node`` with the parentheses around it."""
        start, end = self.full_span(node)
        return self.data[start:end].decode()

    def _length(self, node: cst.CSTNode) -> int:
        return len(self._module.code_for_node(node).encode())

    def line(self, node: cst.CSTNode) -> int:
        """The 1-based line where ``node`` starts."""
        return self.data.count(b"\n", 0, self.span(node)[0]) + 1

    # -- structure ------------------------------------------------------------------------

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node around ``node``; None for the module."""
        return self._parents.get(node)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around ``node``, innermost first."""
        current = self._parents.get(node)
        while current is not None:
            yield current
            current = self._parents.get(current)

    def enclosing(
        self, node: cst.CSTNode, *types: type[cst.CSTNode], within: cst.CSTNode | None = None
    ) -> cst.CSTNode | None:
        """The innermost node strictly around ``node`` of ``types``, and strictly in ``within``."""
        for outer in self.ancestors(node):
            if outer is within:
                return None
            if isinstance(outer, types):
                return outer
        return None

    def function(self, node: cst.CSTNode) -> JitFunction:
        """The jit function that ``node`` lies in."""
        for outer in self.ancestors(node):
            if outer in self._by_node:
                return self._by_node[outer]
        raise ValueError(f"line {self.line(node)} lies in no jit function")

    @cached_property
    def _by_node(self) -> dict[cst.CSTNode, JitFunction]:
        return {function.node: function for function in self.functions}

    def nodes(
        self, *types: type[cst.CSTNode], within: cst.CSTNode | None = None
    ) -> Iterator[cst.CSTNode]:
        """Nodes of exactly these types in source order, an outer one before those in it.

        ``within`` None means device code: the bodies of the jit functions.
        """
        parts = (f.node.body for f in self.functions) if within is None else (within,)
        return chain.from_iterable(self._search(part, types) for part in parts)

    def _search(
        self, part: cst.CSTNode, types: tuple[type[cst.CSTNode], ...]
    ) -> Iterator[cst.CSTNode]:
        first, end = self._ranges[part]
        runs = [self._of_type.get(kind, []) for kind in types]
        hits = [run[bisect_left(run, first) : bisect_left(run, end)] for run in runs]
        return (self._all[position] for position in merge(*hits))

    def host(self, *types: type[cst.CSTNode]) -> Iterator[cst.CSTNode]:
        """The same of host code: everything outside jit functions."""
        device = [self._ranges[function.node] for function in self.functions]
        for node in self._search(self._module, types):
            position = self._ranges[node][0]
            if not any(first <= position < end for first, end in device):
                yield node

    def _index(self) -> None:
        """Number the nodes in pre-order: a subtree is a run, and each type's nodes are known."""
        self._all: list[cst.CSTNode] = []
        self._ranges: dict[cst.CSTNode, tuple[int, int]] = {}
        self._of_type: dict[type[cst.CSTNode], list[int]] = {}
        stack: list[tuple[cst.CSTNode, int]] = [(self._module, -1)]
        while stack:
            node, first = stack.pop()
            if first >= 0:
                self._ranges[node] = (first, len(self._all))
                continue
            position = len(self._all)
            self._all.append(node)
            self._of_type.setdefault(type(node), []).append(position)
            stack.append((node, position))
            stack.extend((c, -1) for c in reversed(node.children) if not isinstance(c, _BLANK))

    def _jit_functions(self) -> Iterator[JitFunction]:
        for node in self._search(self._module, (cst.FunctionDef,)):
            if any(self.qualified(_called(d.decorator)) in _JIT for d in node.decorators):
                yield self._jit_function(node)

    def _jit_function(self, node: cst.FunctionDef) -> JitFunction:
        declared = (*node.params.posonly_params, *node.params.params, *node.params.kwonly_params)
        constant = frozenset(
            p.name.value
            for p in declared
            if p.annotation is not None
            and self.qualified(p.annotation.annotation) == f"{_LANGUAGE}constexpr"
        )
        names = tuple(p.name.value for p in declared)
        return JitFunction(node.name.value, node, names, constant)

    @cached_property
    def launches(self) -> tuple[LaunchSite, ...]:
        """The launches of host code in source order."""
        found = []
        for call in self.host(cst.Call):
            func = call.func
            if not isinstance(func, cst.Subscript) or not isinstance(func.value, cst.Name):
                continue
            kernel = self._by_name.get(func.value.value)
            if kernel is not None and len(func.slice) >= 1:
                first = func.slice[0].slice
                if isinstance(first, cst.Index):
                    found.append(LaunchSite(call, kernel, first.value))
        return tuple(found)

    # -- names ----------------------------------------------------------------------------

    def qualified(self, node: cst.CSTNode) -> str:
        """The dotted name of what an imported name or attribute is, or ``""``."""
        if node in self._qualified:
            return self._qualified[node]
        found = self._qualified[node] = self._qualify(node)
        return found

    def _qualify(self, node: cst.CSTNode) -> str:
        root = node
        while isinstance(root, cst.Attribute):
            root = root.value
        if not isinstance(root, cst.Name):
            return ""  # a method of what a call returns, which is no name
        names = self._names.get(node, ())
        found = sorted(name.name for name in (names() if callable(names) else names))
        return found[0] if len(found) == 1 else ""

    def callee(self, call: cst.CSTNode) -> str:
        """The function of ``triton.language`` that a call calls, by its last name, or ``""``.

        ``exp`` for ``tl.exp(x)``, ``tl.math.exp(x)`` and libdevice's.
        """
        if not isinstance(call, cst.Call):
            return ""
        name = self.qualified(call.func)
        return name.rpartition(".")[2] if name.startswith(_LANGUAGE) else ""

    def is_imported(self, node: cst.CSTNode) -> bool:
        """Whether an attribute is a name of an imported module, as ``tl.float32``."""
        return self.qualified(node).startswith(("triton.", "torch."))

    def calls(self, *names: str, within: cst.CSTNode | None = None) -> Iterator[cst.Call]:
        """Calls of these functions of ``triton.language``, in source order."""
        return (c for c in self.nodes(cst.Call, within=within) if self.callee(c) in names)

    def method(self, call: cst.CSTNode) -> str:
        """The name of the method a call calls, ``to`` for ``x.to(tl.float32)``, or ``""``."""
        if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
            imported = self.qualified(call.func).startswith("triton.")
            return "" if imported else str(call.func.attr.value)
        return ""

    def jit_called(self, call: cst.Call) -> JitFunction | None:
        """The jit function of this module that a call calls."""
        if isinstance(call.func, cst.Name):
            return self._by_name.get(call.func.value)
        return None

    @cached_property
    def language(self) -> str:
        """How the module spells ``triton.language``, as in ``tl``."""
        for node in self.nodes(cst.Attribute):
            if self.qualified(node.value) == _LANGUAGE[:-1]:
                return self.text(node.value)
        return "tl"


def _called(decorator: cst.BaseExpression) -> cst.BaseExpression:
    return decorator.func if isinstance(decorator, cst.Call) else decorator


def _parsed(source: str) -> cst.Module:
    """The module's syntax. Python's own parser is asked first: it tells the line of an error."""
    try:
        ast.parse(source)
        return cst.parse_module(source)
    except (SyntaxError, ValueError, cst.ParserSyntaxError) as error:
        line = error.raw_line if isinstance(error, cst.ParserSyntaxError) else None
        line = error.lineno if isinstance(error, SyntaxError) else line
        what = error.msg if isinstance(error, SyntaxError) else error
        raise KernelSyntaxError(
            f"the Triton module does not parse: {what}",
            where=f"line {line}" if line else "",
            hint="mutation needs a module that Python parses",
        ) from error
