"""Guards and counting loops of device code, as the boundary and synchronization rules see them.

A *bound test* compares a varying index with a fixed extent (see ``extents``), or a thread index
with the variable of a halving or doubling loop (``tid < s``). A *guard* is a condition made of
bound tests: of an ``if``, of ``?:``, of a ``bool`` local, or of a returned truth value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernelassay.mutation.barriers import is_block_barrier
from kernelassay.mutation.extents import bare, compact, extents, literal
from kernelassay.mutation.nodes import field, names_in, operator
from kernelassay.mutation.tree import KernelTree

MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_WARP_COUNT = re.compile(r"(blockDim\.x|\b[A-Z]{2,})[^?:]*(/\(?(32|warpSize|WARP\w*)\b|>>5)|WARPS")
_EXITS = ("return_statement", "continue_statement", "break_statement")


@dataclass(frozen=True, slots=True)
class BoundTest:
    """One comparison, read with the index on the left.

    ``operator`` is the operator seen from the index (``n > i`` has ``<``). ``inside`` tells
    whether the guarded access happens when the test holds (``i < n``) or when it fails
    (``i >= n``). ``upper`` tells which side of the extent it guards.
    """

    node: Node
    index: Node
    bound: Node
    operator: str
    inside: bool

    @property
    def upper(self) -> bool:
        """Whether the test keeps the index below something."""
        return (self.operator in ("<", "<=")) == self.inside

    def text(self, tree: KernelTree, symbol: str, bound: str) -> str:
        """The comparison with another operator and bound, index and bound in place."""
        index = tree.text(self.index)
        if self.node.children[0].id == self.index.id:
            return f"{index} {symbol} {bound}"
        return f"{bound} {MIRRORED[symbol]} {index}"


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition with bound tests in it.

    ``owner`` is the ``if``, the ``?:``, the declarator or the ``return``. ``operands`` are the
    terms of its ``&&`` / ``||`` chain, ``tests`` those of them that are bound tests.
    """

    owner: Node
    condition: Node
    operands: tuple[Node, ...]
    tests: tuple[BoundTest, ...]
    exits: bool

    @property
    def pure(self) -> bool:
        """Whether every operand is a bound test."""
        return len(self.operands) == len(self.tests)


@dataclass(frozen=True, slots=True)
class Halo:
    """Both sides of one padding test. ``lower is upper`` for ``(unsigned)i < (unsigned)n``."""

    guard: Guard
    lower: BoundTest
    upper: BoundTest

    @property
    def unsigned(self) -> bool:
        """Whether one unsigned comparison tests both sides."""
        return self.lower is self.upper


def only_statement(node: Node) -> Node:
    """The statement in a one-statement block, or ``node``."""
    if node.type == "compound_statement":
        inner = [c for c in node.named_children if c.type != "comment"]
        if len(inner) == 1:
            return inner[0]
    return node


def flatten(tree: KernelTree, node: Node, symbol: str) -> list[Node]:
    """The operands of a chain of one logical operator, through parentheses."""
    inner = node
    while inner.type == "parenthesized_expression":
        inner = inner.named_children[0]
    if inner.type == "binary_expression" and operator(tree, inner) == symbol:
        return [
            *flatten(tree, field(inner, "left"), symbol),
            *flatten(tree, field(inner, "right"), symbol),
        ]
    return [inner]


def bound_test(tree: KernelTree, node: Node, inside: bool) -> BoundTest | None:
    """``node`` as a bound test, or None."""
    if node.type != "binary_expression" or operator(tree, node) not in MIRRORED:
        return None
    left, right = field(node, "left"), field(node, "right")
    if tree.is_float(left) or tree.is_float(right):
        return None
    if "pointer" in (tree.kind(left), tree.kind(right)):
        return None
    known = extents(tree)
    fixed = known.fixed(left), known.fixed(right)
    if fixed == (False, False):
        fixed = _is_common(tree, left), _is_common(tree, right)
    symbol = operator(tree, node)
    if fixed == (False, True):
        return BoundTest(node, left, right, symbol, inside)
    if fixed == (True, False):
        return BoundTest(node, right, left, MIRRORED[symbol], inside)
    return None


def _is_common(tree: KernelTree, node: Node) -> bool:
    """Whether a varying bound is the same for all threads.

    It is the variable of a halving or doubling loop, or a part's length, ``min(TILE, n - k)``.
    """
    if node.type != "identifier":
        return False
    known = extents(tree)
    value = known.resolve(node)
    if value.type == "call_expression" and tree.text(field(value, "function")) == "min":
        return "threadIdx" not in known.expand(value)
    name = tree.text(node)
    return any(
        loop.variable == name and loop.geometric
        for around in tree.ancestors(node)
        if around.type == "for_statement" and (loop := as_loop(tree, around)) is not None
    )


def guards(tree: KernelTree) -> Iterator[Guard]:
    """All guards of device code in source order."""
    for node in tree.nodes(
        "if_statement", "conditional_expression", "init_declarator", "return_statement"
    ):
        guard = as_guard(tree, node)
        if guard is not None and guard.tests:
            yield guard


def as_guard(tree: KernelTree, node: Node) -> Guard | None:
    """The guard that ``node`` owns, if it can own one."""
    condition = _condition(tree, node)
    if condition is None:
        return None
    exits = False
    if node.type == "if_statement" and node.child_by_field_name("alternative") is None:
        exits = only_statement(field(node, "consequence")).type in _EXITS
    inner, negated = condition, False
    while True:
        if inner.type == "parenthesized_expression":
            inner = inner.named_children[0]
        elif inner.type == "unary_expression" and operator(tree, inner) == "!":
            inner, negated = field(inner, "argument"), not negated
        else:
            break
    symbol = operator(tree, inner) if inner.type == "binary_expression" else ""
    if symbol in ("&&", "||"):
        operands = flatten(tree, inner, symbol)
        inside = symbol == "&&"
    else:
        operands, inside = [inner], exits == negated
    tests = [bound_test(tree, operand, inside) for operand in operands]
    return Guard(node, condition, tuple(operands), tuple(t for t in tests if t), exits)


def _condition(tree: KernelTree, node: Node) -> Node | None:
    if node.type == "if_statement":
        return field(node, "condition").child_by_field_name("value")
    if node.type == "conditional_expression":
        return None if is_clip(tree, node) else field(node, "condition")
    if node.type == "init_declarator":
        value = node.child_by_field_name("value")
    else:
        value = node.named_children[0] if node.named_children else None
    truth = value is not None and value.type == "binary_expression" and tree.kind(value) == "bool"
    return value if truth else None


def is_clip(tree: KernelTree, node: Node) -> bool:
    """Whether a ``?:`` over integers returns one of the two values that it compares."""
    condition = bare(field(node, "condition"))
    if condition.type != "binary_expression" or operator(tree, condition) not in MIRRORED:
        return False
    compared = {compact(tree.text(bare(field(condition, f)))) for f in ("left", "right")}
    chosen = [field(node, f) for f in ("consequence", "alternative")]
    integers = all(tree.kind(n) in ("int", "long", "unknown") for n in chosen)
    return integers and any(compact(tree.text(bare(n))) in compared for n in chosen)


def halos(tree: KernelTree) -> Iterator[Halo]:
    """All two-sided padding tests in source order."""
    for guard in guards(tree):
        paired: set[int] = set()
        for upper in guard.tests:
            if not upper.upper:
                continue
            if tree.text(upper.index).startswith(("(unsigned", "static_cast<unsigned")):
                yield Halo(guard, upper, upper)
                continue
            name = compact(tree.text(upper.index))
            for lower in guard.tests:
                same = compact(tree.text(lower.index)) == name
                free = lower.node.id not in paired
                if not lower.upper and same and free and literal(tree, lower.bound) is not None:
                    paired.add(lower.node.id)
                    yield Halo(guard, lower, upper)
                    break


def halo_tests(tree: KernelTree) -> set[int]:
    """The node ids of the comparisons that are part of a padding test."""
    return {test.node.id for halo in halos(tree) for test in (halo.lower, halo.upper)}


# -- loops --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loop:
    """A ``for`` loop that counts.

    ``motion`` is ``up``, ``down``, ``halving`` or ``doubling``. ``start`` is None when the loop
    goes on with a variable set before; ``step`` is the expression added (None for ``++`` /
    ``--``) or, in a geometric loop, the factor or the shift. ``test`` is the comparison that
    ends the loop, None for another condition.
    """

    node: Node
    variable: str
    motion: str
    start: Node | None
    test: BoundTest | None
    update: Node
    step: Node | None

    @property
    def body(self) -> Node:
        """The loop's body."""
        return field(self.node, "body")

    @property
    def geometric(self) -> bool:
        """Whether the variable is halved or doubled."""
        return self.motion in ("halving", "doubling")


def loops(tree: KernelTree) -> Iterator[Loop]:
    """All counting ``for`` loops of device code in source order."""
    for node in tree.nodes("for_statement"):
        loop = as_loop(tree, node)
        if loop is not None:
            yield loop


def as_loop(tree: KernelTree, node: Node) -> Loop | None:
    """A ``for`` statement as a counting loop, or None."""
    update = node.child_by_field_name("update")
    if update is None or update.type not in ("update_expression", "assignment_expression"):
        return None
    target = field(update, "argument" if update.type == "update_expression" else "left")
    if target.type != "identifier":
        return None
    variable = tree.text(target)
    motion, step = _motion(tree, update, variable)
    if not motion:
        return None
    start = _start(tree, node.child_by_field_name("initializer"), variable)
    condition = node.child_by_field_name("condition")
    test = None if condition is None else _end_test(tree, condition, variable, motion)
    return Loop(node, variable, motion, start, test, update, step)


def _motion(tree: KernelTree, update: Node, variable: str) -> tuple[str, Node | None]:
    symbol = operator(tree, update)
    if update.type == "update_expression":
        return ("up" if symbol == "++" else "down"), None
    right = field(update, "right")
    if symbol == "=":
        value = bare(right)
        if value.type != "binary_expression":
            return "", None
        if tree.text(field(value, "left")) != variable:
            return "", None
        symbol, right = operator(tree, value) + "=", field(value, "right")
    motions = {
        "+=": "up",
        "-=": "down",
        ">>=": "halving",
        "/=": "halving",
        "<<=": "doubling",
        "*=": "doubling",
    }
    return motions.get(symbol, ""), right


def _start(tree: KernelTree, initializer: Node | None, variable: str) -> Node | None:
    if initializer is None:
        return None
    for node in tree.nodes("init_declarator", "assignment_expression", within=initializer):
        declared = node.type == "init_declarator"
        if tree.text(field(node, "declarator" if declared else "left")) == variable:
            return field(node, "value" if declared else "right")
    return None


def _end_test(tree: KernelTree, condition: Node, variable: str, motion: str) -> BoundTest | None:
    for operand in flatten(tree, condition, "&&"):
        if operand.type != "binary_expression" or operator(tree, operand) not in MIRRORED:
            continue
        left, right = field(operand, "left"), field(operand, "right")
        symbol = operator(tree, operand)
        if variable in names_in(tree, left):
            test = BoundTest(operand, left, right, symbol, True)
        elif variable in names_in(tree, right):
            test = BoundTest(operand, right, left, MIRRORED[symbol], True)
        else:
            continue
        if test.upper == (motion in ("up", "doubling")):
            return test
    return None


def is_shared_out(tree: KernelTree, loop: Loop) -> bool:
    """Whether the loop's iterations are dealt out to threads or blocks (``i += blockDim.x``)."""
    if loop.motion != "up" or loop.step is None:
        return False
    known = extents(tree)
    text = known.expand(loop.step)
    if "blockDim" in text or "gridDim" in text:
        return True
    return loop.start is not None and "threadIdx" in known.expand(loop.start)


def has_barrier(tree: KernelTree, node: Node) -> bool:
    """Whether the threads of a block meet inside ``node``."""
    return any(is_block_barrier(tree, call) for call in tree.nodes("call_expression", within=node))


def warp_combine_tests(tree: KernelTree) -> list[BoundTest]:
    """The tests that bound the reading of one partial result per warp.

    Their bound is a number of warps: ``blockDim.x / 32``, ``blockDim.x >> 5``, rounded up or
    not, ``BLOCK / WARP``, or a constant with WARPS in its name.
    """
    known = extents(tree)
    tests = [test for guard in guards(tree) for test in guard.tests]
    tests += [loop.test for loop in loops(tree) if loop.test is not None and loop.motion == "up"]
    found = {
        test.node.id: test
        for test in tests
        if test.upper and _WARP_COUNT.search(known.expand(test.bound))
    }
    return sorted(found.values(), key=lambda test: test.node.start_byte)
