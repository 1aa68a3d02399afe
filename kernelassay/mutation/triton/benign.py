"""Benign rewrites of Triton kernels: correct kernels stay correct, only their rounding changes.

They are controls, not mutants. Each fires only where the rewrite is right whatever the sizes and
the data; a zero or an infinity that only the rewrite meets is the validity gate's to find.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import libcst as cst

from kernelassay.mutation.rule import Edit, Example, Find, Mutation, Rule, mutation
from kernelassay.mutation.triton.boundary_loops import ranges
from kernelassay.mutation.triton.examples import SUMMED, body, edited, module, rule, stored
from kernelassay.mutation.triton.indexing import block_products
from kernelassay.mutation.triton.match import (
    atom,
    binary,
    comparison,
    names,
    number,
    put,
    replace,
    value,
)
from kernelassay.mutation.triton.roles import accumulated, numbers
from kernelassay.mutation.triton.semantic_reduction import renamed
from kernelassay.mutation.triton.tree import LaunchSite, TritonTree
from kernelassay.mutation.triton.values import values_of

# -- operands and operations --------------------------------------------------------------------


def _commuted(old: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for node in numbers(tree, old):
            if tree.text(node.left) == tree.text(node.right):
                continue
            # A product on the right would be regrouped by losing its parentheses.
            left = atom(tree, node.left) if old == "*" else tree.full(node.left)
            yield mutation(replace(tree, node, f"{tree.full(node.right)} {old} {left}"))

    return find


def _regrouped(old: str) -> Find:
    """``a + b + c`` to ``a + (b + c)``; of products those whose constants are of ordinary size."""

    def find(tree: TritonTree) -> Iterator[Mutation]:
        for node in numbers(tree, old):
            inner = node.left
            if not binary(inner, old) or inner.lpar:
                continue
            parts = (inner.left, inner.right, node.right)
            sizes = [abs(n) for part in parts if (n := number(part)) is not None]
            if old == "*" and not (sizes and all(1 / 64 <= size <= 64 for size in sizes)):
                continue
            first, second, third = (tree.full(part) for part in parts)
            yield mutation(replace(tree, node, f"{first} {old} ({second} {old} {third})"))

    return find


def _reciprocal(tree: TritonTree) -> Iterator[Mutation]:
    for node in numbers(tree, "/"):
        if values_of(tree, node).kind(node.right) == "value" and number(node.left) != 1:
            text = f"{tree.full(node.left)} * (1.0 / {atom(tree, node.right)})"
            yield mutation(replace(tree, node, text))


def _exp2(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("exp"):
        if len(call.args) == 1 and isinstance(call.func, cst.Attribute):
            given = call.args[0].value
            yield mutation(
                renamed(tree, call, "exp2"),
                put(tree, given, f"{atom(tree, given)} * {math.log2(math.e)!r}"),
            )


def _choice_to_maximum(tree: TritonTree) -> Iterator[Mutation]:
    tl = tree.language
    for call in tree.calls("where"):
        condition, one, other = (value(call, i) for i in range(3))
        sides = comparison(condition) if condition is not None else None
        if sides is None or one is None or other is None or number(sides[2]) != 0:
            continue
        tile, positive = tree.text(sides[0]), sides[1] in (">", ">=")
        kept, zero = (one, other) if positive else (other, one)
        if tree.text(kept) == tile and number(zero) == 0 and sides[1] not in ("==", "!="):
            # What is not a number passes the test of `x < 0` only by failing it.
            passed = "" if positive else f", propagate_nan={tl}.PropagateNan.ALL"
            yield mutation(replace(tree, call, f"{tl}.maximum({tree.full(kept)}, 0.0{passed})"))


def _maximum_to_choice(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("maximum"):
        if len(call.args) == 2 and number(call.args[1].value) == 0:
            tile = call.args[0].value
            if isinstance(tile, cst.Name) and values_of(tree, call).kind(tile) == "value":
                text = f"{tree.language}.where({tile.value} > 0.0, {tile.value}, 0.0)"
                yield mutation(replace(tree, call, text))


def _inverse_root(tree: TritonTree) -> Iterator[Mutation]:
    for node in tree.nodes(cst.BinaryOperation, cst.Call):
        if binary(node, "/") and number(node.left) == 1:
            root = node.right
            if tree.callee(root) == "sqrt" and isinstance(root.func, cst.Attribute):
                text = f"{tree.text(root.func.value)}.rsqrt({tree.full(root.args[0].value)})"
                yield mutation(put(tree, node, text))
        elif tree.callee(node) == "rsqrt" and isinstance(node.func, cst.Attribute):
            root = f"{tree.text(node.func.value)}.sqrt({tree.full(node.args[0].value)})"
            yield mutation(put(tree, node, f"1.0 / {root}"))


# -- loops and launches -------------------------------------------------------------------------


def _reversed_loop(tree: TritonTree) -> Iterator[Mutation]:
    for call, given in ranges(tree):
        loop = tree.parent(call)
        zero = len(given) == 1 or number(given[0]) == 0
        if not isinstance(loop, cst.For) or not zero or not _only_sums(tree, loop):
            continue
        stop, tl = given[0] if len(given) == 1 else given[1], tree.language
        arguments = f"{atom(tree, stop)} - 1, -1, -1"
        if len(given) == 3:
            step = atom(tree, given[2])
            last = f"({tl}.cdiv({tree.full(stop)}, {tree.full(given[2])}) - 1) * {step}"
            arguments = f"{last}, -1, -{step}"
        start, end = tree.full_span(given[0])[0], tree.full_span(given[-1])[1]
        yield mutation(Edit(start, end, arguments))


def _only_sums(tree: TritonTree, loop: cst.For) -> bool:
    """Whether the iterations of a loop commute but for rounding.

    All it carries are sums that nothing else in it reads, and it stores nothing.
    """
    values = values_of(tree, loop)
    inside = [c for c in values.carried if c.loop is loop]
    effects = ("store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "atomic_cas")
    if not inside or any(tree.calls(*effects, "debug_barrier", within=loop)):
        return False
    if any(tree.nodes(cst.For, cst.While, cst.Break, cst.Continue, within=loop.body)):
        return False
    sums = {id(node) for _, node in accumulated(tree)}
    for carried in inside:
        only = len(carried.updates) == 1 and id(carried.updates[0].node) in sums
        reads = names(tree, loop.body).count(carried.name)
        if not only or reads != 1:
            return False
    return True


def _block_halved(tree: TritonTree) -> Iterator[Mutation]:
    """A literal block size of host code halved, where the grid is computed from the same name."""
    for node in tree.host(cst.Assign):
        for name, given in _literals(node):
            size = number(given)
            if size is None or size < 32 or size % 2 or not _follows(tree, node, name):
                continue
            yield mutation(replace(tree, given, str(int(size) // 2)))


def _literals(node: cst.Assign) -> Iterator[tuple[str, cst.BaseExpression]]:
    target = node.targets[0].target
    if len(node.targets) != 1:
        return
    if isinstance(target, cst.Name):
        yield target.value, node.value
    elif isinstance(target, cst.Tuple) and isinstance(node.value, cst.Tuple):
        for to, given in zip(target.elements, node.value.elements, strict=False):
            if isinstance(to.value, cst.Name):
                yield to.value.value, given.value


def _follows(tree: TritonTree, assigned: cst.Assign, name: str) -> bool:
    """Whether a name is a size that grids are divided by, and launches hand over, only.

    In each kernel it reaches the size must be what a program's number is multiplied by.
    """
    divides = handed = False
    scope = tree.enclosing(assigned, cst.FunctionDef)
    named = [n for n in tree.host(cst.Name) if n.value == name]
    for node in named if scope is None else [n for n in named if scope in tree.ancestors(n)]:
        if isinstance(tree.parent(node), cst.AssignTarget | cst.Element):
            continue
        arg = tree.parent(node)
        if not isinstance(arg, cst.Arg):
            return False
        call = tree.parent(arg)
        if arg.keyword is node:
            continue
        if isinstance(call, cst.Call) and tree.qualified(call.func) == "triton.cdiv":
            divides = divides or call.args.index(arg) == 1
            continue
        site = next((s for s in tree.launches if s.node is call), None)
        if site is None or arg.keyword is None or not _tiles(tree, site, arg.keyword.value):
            return False
        handed = True
    return divides and handed


def _tiles(tree: TritonTree, site: LaunchSite, parameter: str) -> bool:
    return any(
        tree.text(factor) == parameter and tree.function(node) is site.kernel
        for node, factor in block_products(tree)
    )


def _warps(tree: TritonTree) -> Iterator[Mutation]:
    for site in tree.launches:
        given = value(site.node, None, "num_warps")
        if given is None and site.arguments:
            end = tree.span(site.arguments[-1])[1]
            yield mutation(Edit(end, end, ", num_warps=8"))
        elif number(given) is not None:
            yield mutation(replace(tree, given, "4" if number(given) != 4 else "8"))


def _benign(id_: str, what: str, find: Find, *examples: Example) -> Rule:
    return rule(id_, "benign", what, "no bug: another correct kernel", find, *examples)


_LAUNCH = "BLOCK=BLOCK)"


def _fixed(grid: str) -> str:
    """A module whose launch chooses the block size itself."""
    copy = (
        "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\ntl.store(y_ptr + i, 1.0, mask=i < n)"
    )
    text = module(copy, grid=grid, host="BLOCK = 1024")
    return text.replace("n, BLOCK):\n    BLOCK =", "n):\n    BLOCK =")


#: The benign rewrites in their fixed order.
BENIGN: tuple[Rule, ...] = (
    _benign(
        "commuted-sum",
        "`a + b` to `b + a`",
        _commuted("+"),
        stored("x * 2.0 + tl.exp(x)", "tl.exp(x) + x * 2.0"),
    ),
    _benign(
        "commuted-product",
        "`a * b` to `b * a`",
        _commuted("*"),
        stored("x * tl.exp(x)", "tl.exp(x) * x"),
        stored("x / 2.0 * 3.0", "3.0 * (x / 2.0)"),
    ),
    _benign(
        "regrouped-sum",
        "`a + b + c` to `a + (b + c)`",
        _regrouped("+"),
        stored("x + 1.0 + tl.exp(x)", "x + (1.0 + tl.exp(x))"),
    ),
    _benign(
        "regrouped-product",
        "`a * b * c` to `a * (b * c)` where one factor is a literal of ordinary size",
        _regrouped("*"),
        stored("0.5 * x * tl.exp(x)", "0.5 * (x * tl.exp(x))"),
        stored("x * x * x"),
    ),
    _benign(
        "reciprocal-multiply",
        "`a / b` to `a * (1 / b)`",
        _reciprocal,
        stored("x / tl.exp(x)", "x * (1.0 / tl.exp(x))"),
        stored("1.0 / tl.exp(x)"),
    ),
    _benign(
        "exp-by-exp2",
        "`exp(e)` to `exp2(e * log2(e))`",
        _exp2,
        stored("tl.exp(-x)", "tl.exp2((-x) * 1.4426950408889634)"),
    ),
    _benign(
        "choice-to-maximum",
        "`tl.where(x > 0, x, 0)` to `tl.maximum(x, 0)`",
        _choice_to_maximum,
        stored("tl.where(x > 0, x, 0.0)", "tl.maximum(x, 0.0)"),
        stored(
            "tl.where(x < 0, 0.0, x)",
            "tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)",
        ),
        stored("tl.where(x > 0, 2.0 * x, 0.0)"),
    ),
    _benign(
        "maximum-to-choice",
        "`tl.maximum(x, 0)` to `tl.where(x > 0, x, 0)`",
        _maximum_to_choice,
        stored("tl.maximum(x, 0.0)", "tl.where(x > 0.0, x, 0.0)"),
    ),
    _benign(
        "inverse-root",
        "`1 / sqrt(e)` to `rsqrt(e)` and back",
        _inverse_root,
        stored("x * (1.0 / tl.sqrt(x))", "x * (tl.rsqrt(x))"),
        stored("x * tl.rsqrt(x)", "x * (1.0 / tl.sqrt(x))"),
    ),
    _benign(
        "reversed-loop",
        "a loop that only sums runs from the other end",
        _reversed_loop,
        body(SUMMED, ("range(0, n, BLOCK)", "range((tl.cdiv(n, BLOCK) - 1) * BLOCK, -1, -BLOCK)")),
        body(
            "s = 0.0\nfor i in range(n):\n    s += tl.load(x_ptr + i)\ntl.store(y_ptr, s)",
            ("range(n)", "range(n - 1, -1, -1)"),
        ),
        body(
            "s = 0.0\nfor i in range(n):\n    s += tl.load(x_ptr + i)\n    tl.store(y_ptr + i, s)"
        ),
    ),
    _benign(
        "block-halved-with-grid",
        "a block size halved together with the grid that is computed from it",
        _block_halved,
        edited(_fixed("(triton.cdiv(n, BLOCK),)"), ("BLOCK = 1024", "BLOCK = 512")),
        edited(_fixed("(4,)")),
    ),
    _benign(
        "other-warps",
        "another `num_warps`",
        _warps,
        body("tl.store(y_ptr, 1.0)", (_LAUNCH, "BLOCK=BLOCK, num_warps=8)")),
        edited(
            module("tl.store(y_ptr, 1.0)").replace(_LAUNCH, "*n, num_warps=8)"),
            ("num_warps=8", "num_warps=4"),
        ),
    ),
)
