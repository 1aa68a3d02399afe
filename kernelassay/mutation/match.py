"""Questions about expressions, stores, loads and accumulators that several families share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tree_sitter import Node

from kernelassay.mutation.nodes import arguments, callee, calls, field, operator
from kernelassay.mutation.rule import Edit, Find, Mutation
from kernelassay.mutation.tree import KernelTree, mutation, replace

_PRIMARY = frozenset(
    {
        "identifier",
        "number_literal",
        "call_expression",
        "subscript_expression",
        "field_expression",
        "parenthesized_expression",
        "true",
        "false",
    }
)
# Where any expression stands without parentheses.
_OPEN = frozenset(
    {
        "init_declarator",
        "argument_list",
        "parenthesized_expression",
        "return_statement",
        "expression_statement",
        "initializer_list",
        "condition_clause",
        "subscript_argument_list",
    }
)
LOOPS = ("for_statement", "while_statement", "do_statement")
# Calls that exchange data between threads or touch memory: their text must not be repeated.
_IMPURE = re.compile(r"__shfl|atomic|__sync|\+\+|--|[^=!<>]=[^=]")
_WORD = re.compile(r"[A-Za-z_]\w*")


# -- shape of one expression ----------


def strip(node: Node) -> Node:
    """``node`` without the parentheses around it."""
    while node.type in ("parenthesized_expression", "condition_clause") and node.named_children:
        node = node.named_children[0]
    return node


def binary(tree: KernelTree, node: Node, *operators: str) -> tuple[Node, Node] | None:
    """The two sides of a binary expression with one of ``operators``."""
    node = strip(node)
    if node.type != "binary_expression" or operator(tree, node) not in operators:
        return None
    return field(node, "left"), field(node, "right")


def call(tree: KernelTree, node: Node, *names: str) -> list[Node] | None:
    """The arguments, if ``node`` (in parentheses or not) calls one of ``names``."""
    node = strip(node)
    return arguments(node) if callee(tree, node) in names else None


def renaming(names: Mapping[str, str]) -> Find:
    """Finds the calls of some functions, and calls another in the place of each."""

    def find(tree: KernelTree) -> Iterator[Mutation]:
        for node in calls(tree, *names):
            yield mutation(replace(field(node, "function"), names[callee(tree, node)]))

    return find


def number(tree: KernelTree, node: Node) -> float | None:
    """The value of a numeric literal, with its sign and a cast if it has one."""
    node = strip(node)
    if node.type == "unary_expression" and operator(tree, node) in ("-", "+"):
        inner = number(tree, field(node, "argument"))
        return inner if inner is None or operator(tree, node) == "+" else -inner
    if node.type == "cast_expression":
        return number(tree, field(node, "value"))
    return parse_number(tree.text(node)) if node.type == "number_literal" else None


def parse_number(text: str) -> float | None:
    """The value of a C literal such as ``0.5f``, ``1e-5``, ``0x1p-3f`` or ``3u``."""
    text = text.replace("'", "")
    try:
        if text.lower().startswith("0x"):
            return float.fromhex(text.rstrip("uUlL")) if "p" not in text.lower() else _hex(text)
        return float(text.rstrip("fFuUlL"))
    except ValueError:
        return None


def _hex(text: str) -> float:
    return float.fromhex(text.rstrip("fFlL"))


def squash(text: str) -> str:
    """A text without white space: what "the same expression" is compared by."""
    return "".join(text.split())


def same(tree: KernelTree, one: Node, other: Node) -> bool:
    """Whether two expressions are spelled alike, parentheses around them aside."""
    return squash(tree.text(strip(one))) == squash(tree.text(strip(other)))


def pure(tree: KernelTree, node: Node) -> bool:
    """Whether the text of ``node`` may stand twice: no assignment, exchange or step in it."""
    return _IMPURE.search(f" {tree.text(node)} ") is None


# -- text that fits where it is put ----------


def atom(tree: KernelTree, node: Node) -> str:
    """The text of ``node``, in parentheses unless it binds tighter than any operator."""
    text = tree.text(node)
    return text if node.type in _PRIMARY else f"({text})"


def term(tree: KernelTree, node: Node) -> str:
    """The text of ``node`` as a summand: products stay bare, sums get parentheses."""
    if node.type == "binary_expression" and operator(tree, node) in ("*", "/"):
        return tree.text(node)
    return atom(tree, node)


def fit(tree: KernelTree, node: Node, text: str) -> str:
    """``text`` in parentheses if the place of ``node`` asks for them."""
    parent = tree.parent(node)
    bare = parent is None or parent.type in _OPEN
    if parent is not None and parent.type == "assignment_expression":
        bare = field(parent, "right").id == node.id
    return text if bare or _is_primary(text) else f"({text})"


def _is_primary(text: str) -> bool:
    if parse_number(text) is not None:
        return not text.startswith("-")
    head = re.match(r"[\w.]*", text)
    rest = text[head.end() :] if head is not None else text
    while rest:
        close = {"(": ")", "[": "]"}.get(rest[0])
        if close is None:
            return False
        depth = 0
        for at, char in enumerate(rest):
            depth += (char in "([") - (char in ")]")
            if depth == 0:
                rest = rest[at + 1 :]
                break
        else:
            return False
    return True


def put(tree: KernelTree, node: Node, text: str) -> Edit:
    """The edit that puts an expression ``text`` in place of ``node``."""
    return Edit(node.start_byte, node.end_byte, fit(tree, node, text))


def include(tree: KernelTree, header: str) -> tuple[Edit, ...]:
    """The edit that adds ``#include <header>`` as the first line, if the source lacks it."""
    if f"<{header}>" in tree.source:
        return ()
    return (Edit(0, 0, f"#include <{header}>\n"),)


# -- names and definitions ----------


def declared_name(tree: KernelTree, declarator: Node) -> str:
    """The name that an (init) declarator declares."""
    inner: Node | None = declarator
    while inner is not None and inner.type != "identifier":
        inner = inner.child_by_field_name("declarator") or next(
            (c for c in inner.named_children if c.type.endswith("declarator")), None
        )
    return tree.text(inner) if inner is not None else ""


def is_assigned(tree: KernelTree, function: Node, name: str) -> bool:
    """Whether ``function`` changes the variable ``name`` after its declaration."""
    for node in tree.nodes("assignment_expression", "update_expression", within=function):
        target = field(node, "left" if node.type == "assignment_expression" else "argument")
        if tree.text(target) == name:
            return True
    return False


def definition(tree: KernelTree, node: Node) -> Node | None:
    """The initialiser of the variable that ``node`` names, if it is the variable's only value."""
    node = strip(node)
    if node.type != "identifier":
        return None
    name, function = tree.text(node), tree.function(node)
    found = None
    for declarator in tree.nodes("init_declarator", within=function):
        if declarator.end_byte > node.start_byte or declared_name(tree, declarator) != name:
            continue
        scope = tree.enclosing(declarator, "compound_statement", *LOOPS)
        if scope is not None and scope.start_byte <= node.start_byte < scope.end_byte:
            found = field(declarator, "value")
    if found is None or is_assigned(tree, function, name):
        return None
    return found


def expand(tree: KernelTree, node: Node) -> Node:
    """``node``, or what the single-valued name it is stands for."""
    value = definition(tree, node)
    return strip(value) if value is not None else strip(node)


def resolve(tree: KernelTree, node: Node) -> Node:
    """``node``, or what the chain of single-valued names it starts stands for."""
    node = strip(node)
    for _ in range(8):
        found = definition(tree, node)
        if found is None:
            break
        node = strip(found)
    return node


def pointer_root(tree: KernelTree, node: Node) -> str:
    """The name of the pointer that ``node`` goes through, local aliases resolved; else empty."""
    function = tree.function(node)
    parameters = {p.name for p in tree.parameters(function) if p.is_pointer}
    for _ in range(8):
        node = strip(node)
        match node.type:
            case "identifier":
                value = None if tree.text(node) in parameters else definition(tree, node)
                if value is None:
                    return tree.text(node)
                node = value
            case "subscript_expression" | "pointer_expression" | "field_expression":
                node = field(node, "argument")
            case "cast_expression":
                node = field(node, "value")
            case "call_expression" if callee(tree, node) in ("reinterpret_cast", "__ldg"):
                node = arguments(node)[0]
            case "binary_expression":
                left, right = field(node, "left"), field(node, "right")
                node = left if tree.kind(left) == "pointer" else right
            case _:
                return ""
    return ""


# -- memory ----------


@dataclass(frozen=True, slots=True)
class Store:
    """``target = value`` into the global memory of pointer parameter ``pointer``."""

    node: Node
    target: Node
    value: Node
    pointer: str


def outputs(tree: KernelTree, function: Node) -> tuple[str, ...]:
    """The pointer parameters of ``function`` that it may write to."""
    return tuple(
        p.name
        for p in tree.parameters(function)
        if p.is_pointer and "const" not in p.type_text.split("*")[0].split()
    )


def inputs(tree: KernelTree, function: Node) -> tuple[str, ...]:
    """The pointer-to-const parameters of ``function``."""
    writable = set(outputs(tree, function))
    return tuple(
        p.name for p in tree.parameters(function) if p.is_pointer and p.name not in writable
    )


def stores(tree: KernelTree) -> Iterator[Store]:
    """Every plain store of a kernel to global memory, in source order."""
    for kernel in tree.kernels:
        writable = outputs(tree, kernel)
        for node in tree.nodes("assignment_expression", within=kernel):
            target = field(node, "left")
            if operator(tree, node) != "=":
                continue
            if target.type not in ("subscript_expression", "pointer_expression"):
                continue
            pointer = pointer_root(tree, target)
            if pointer in writable:
                yield Store(node, target, field(node, "right"), pointer)


def loads(tree: KernelTree, within: Node | None = None) -> Iterator[Node]:
    """Every read of a float from a pointer-to-const parameter: ``p[i]``, ``__ldg(&p[i])``."""
    for node in tree.nodes("subscript_expression", within=within):
        if tree.kind(node) == "float" and is_load(tree, node):
            yield node


def is_load(tree: KernelTree, node: Node) -> bool:
    """Whether ``node`` reads from a pointer-to-const parameter of its function."""
    node = strip(node)
    if node.type != "subscript_expression":
        return False
    function = tree.function(node)
    return pointer_root(tree, node) in inputs(tree, function)


def subscript(tree: KernelTree, node: Node) -> Node | None:
    """The only index of a subscript expression."""
    node = strip(node)
    if node.type != "subscript_expression":
        return None
    return field(node, "indices").named_children[0]


# -- accumulators ----------


@dataclass(frozen=True, slots=True)
class Update:
    """``target`` takes in ``term``: ``t += e``, ``t = t + e``, ``t = fmaf(a, b, t)``."""

    node: Node
    target: Node
    name: str
    term: Node
    fused: tuple[Node, Node] | None = None


def updates(tree: KernelTree, function: Node) -> Iterator[Update]:
    """Every sum of a floating-point variable of ``function`` with itself, in source order."""
    for node in tree.nodes("assignment_expression", within=function):
        target, value = field(node, "left"), field(node, "right")
        name = root_identifier(tree, target)
        if not name or not tree.is_float(target):
            continue
        if operator(tree, node) == "+=":
            yield Update(node, target, name, value)
        elif operator(tree, node) == "=":
            sides = binary(tree, value, "+")
            fused = call(tree, value, "fmaf", "__fmaf_rn", "fma")
            if fused and len(fused) == 3 and same(tree, fused[2], target):
                yield Update(node, target, name, fused[0], (fused[0], fused[1]))
            elif sides and same(tree, sides[0], target):
                yield Update(node, target, name, sides[1])
            elif sides and same(tree, sides[1], target):
                yield Update(node, target, name, sides[0])


def added(tree: KernelTree, update: Update) -> str:
    """The text of what an update adds, as a summand."""
    if update.fused:
        return f"{atom(tree, update.fused[0])} * {atom(tree, update.fused[1])}"
    return term(tree, update.term)


def root_identifier(tree: KernelTree, node: Node) -> str:
    """The variable a chain of subscripts and members starts from; else empty."""
    node = strip(node)
    while node.type in ("subscript_expression", "field_expression"):
        node = strip(field(node, "argument"))
    return tree.text(node) if node.type == "identifier" else ""


def accumulators(tree: KernelTree) -> Iterator[tuple[str, tuple[Update, ...]]]:
    """Local float variables summed up in a loop, with all their updates, in source order."""
    for function in (*tree.device_functions, *tree.kernels):
        pointers = {p.name for p in tree.parameters(function) if p.is_pointer}
        groups: dict[str, list[Update]] = {}
        for update in updates(tree, function):
            if update.name not in pointers and pointer_root(tree, update.target) not in pointers:
                groups.setdefault(update.name, []).append(update)
        for name, found in groups.items():
            if any(tree.enclosing(u.node, *LOOPS) for u in found):
                yield name, tuple(found)


def words(text: str) -> list[str]:
    """The identifiers of a text."""
    return _WORD.findall(text)
