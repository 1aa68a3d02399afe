"""The boundary family, in loops and launches: how many tiles, of which size."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelassay.mutation.rule import Edit, Find, Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import SUMMED, body, launched, rule
from kernelassay.mutation.triton.match import atom, binary, number, put, replace
from kernelassay.mutation.triton.tree import LaunchSite, TritonTree
from kernelassay.mutation.triton.values import values_of

# -- loops --------------------------------------------------------------------------------------


def ranges(tree: TritonTree) -> Iterator[tuple[cst.Call, list[cst.BaseExpression]]]:
    """The ``range(...)`` and ``tl.range(...)`` of loops, with their positional arguments."""
    for loop in tree.nodes(cst.For):
        call = loop.iter
        if not isinstance(call, cst.Call):
            continue
        plain = isinstance(call.func, cst.Name) and call.func.value == "range"
        if plain or tree.callee(call) in ("range", "static_range"):
            given = [a.value for a in call.args if a.keyword is None and not a.star]
            if given:
                yield call, given


def _start(tree: TritonTree) -> Iterator[Mutation]:
    for _, given in ranges(tree):
        if len(given) == 1:
            yield mutation(Edit(*[tree.full_span(given[0])[0]] * 2, "1, "))
            continue
        step = tree.full(given[2]) if len(given) == 3 else "1"
        start = step if number(given[0]) == 0 else f"{atom(tree, given[0])} + {step}"
        yield mutation(put(tree, given[0], start))


def _stop(change: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for _, given in ranges(tree):
            stop = given[0] if len(given) == 1 else given[1]
            if change != "step":
                yield mutation(put(tree, stop, f"{atom(tree, stop)} {change}"))
            elif len(given) == 3:
                yield mutation(put(tree, stop, f"{atom(tree, stop)} - {atom(tree, given[2])}"))

    return find


def _step_double(tree: TritonTree) -> Iterator[Mutation]:
    for _, given in ranges(tree):
        if len(given) == 3:
            yield mutation(put(tree, given[2], f"{atom(tree, given[2])} * 2"))
        else:
            edge = tree.full_span(given[-1])[1]
            before = "0, " if len(given) == 1 else ""
            start = tree.full_span(given[0])[0]
            yield mutation(Edit(start, start, before), Edit(edge, edge, ", 2"))


def _floor_tiles(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("cdiv"):
        yield mutation(_floor(tree, call))


def _floor(tree: TritonTree, call: cst.Call) -> Edit:
    whole, part = (atom(tree, arg.value) for arg in call.args[:2])
    return put(tree, call, f"{whole} // {part}")


# -- the grid -----------------------------------------------------------------------------------


def assigned(tree: TritonTree, name: str) -> Iterator[cst.BaseExpression]:
    """What host code assigns to a name, also as a part of ``A, B = 1, 2``."""
    for node in tree.host(cst.Assign):
        for target in node.targets:
            if isinstance(target.target, cst.Name) and target.target.value == name:
                yield node.value
            both = isinstance(target.target, cst.Tuple) and isinstance(node.value, cst.Tuple)
            if both and len(target.target.elements) == len(node.value.elements):
                for to, given in zip(target.target.elements, node.value.elements, strict=True):
                    if isinstance(to.value, cst.Name) and to.value.value == name:
                        yield given.value


def grid(tree: TritonTree, site: LaunchSite) -> cst.BaseExpression | None:
    """The tuple behind a launch's grid: written out, a variable's, or a function's result."""
    found: cst.BaseExpression | None = site.grid
    if isinstance(found, cst.Name):
        known = list(assigned(tree, found.value))
        found = known[0] if len(known) == 1 else None
    return found.body if isinstance(found, cst.Lambda) else found


def extents(tree: TritonTree) -> Iterator[cst.BaseExpression]:
    """The extents of all grids, each once, in source order."""
    found: dict[cst.CSTNode, None] = {}
    for site in tree.launches:
        whole = grid(tree, site)
        if isinstance(whole, cst.Tuple):
            found.update(dict.fromkeys(e.value for e in whole.elements))
    return iter(sorted(found, key=tree.span))


def _grid_floor(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.host(cst.Call):
        if tree.qualified(call.func) == "triton.cdiv" and len(call.args) == 2:
            yield mutation(_floor(tree, call))
    for node in tree.host(cst.BinaryOperation):
        # (n + B - 1) // B
        whole = node.left
        if not binary(node, "//") or not binary(whole, "-") or number(whole.right) != 1:
            continue
        same = binary(whole.left, "+") and tree.text(whole.left.right) == tree.text(node.right)
        if same:
            text = f"{atom(tree, whole.left.left)} // {tree.full(node.right)}"
            yield mutation(replace(tree, node, text))


def _grid_minus_one(tree: TritonTree) -> Iterator[Mutation]:
    for extent in extents(tree):
        if number(extent) is None:
            yield mutation(put(tree, extent, f"{atom(tree, extent)} - 1"))


def _grid_axis_swap(tree: TritonTree) -> Iterator[Mutation]:
    seen = set()
    for site in tree.launches:
        whole = grid(tree, site)
        if not isinstance(whole, cst.Tuple) or len(whole.elements) < 2 or whole in seen:
            continue
        seen.add(whole)
        one, other = (e.value for e in whole.elements[:2])
        yield mutation(replace(tree, one, tree.text(other)), replace(tree, other, tree.text(one)))


# -- block sizes --------------------------------------------------------------------------------


def _block_halved(tree: TritonTree) -> Iterator[Mutation]:
    for site in tree.launches:
        # A grid that asks for the block's size follows it.
        if isinstance(site.grid, cst.Lambda) or _is_function(tree, site.grid):
            continue
        values = values_of(tree, site.kernel.node.body)
        steps = {
            tree.text(given[2])
            for call, given in ranges(tree)
            if len(given) == 3 and tree.function(call) is site.kernel
        }
        for arg in site.arguments:
            name = arg.keyword.value if arg.keyword is not None else ""
            if name in site.kernel.constexprs & values.indices and name not in steps:
                yield mutation(put(tree, arg.value, f"{atom(tree, arg.value)} // 2"))


def _is_function(tree: TritonTree, node: cst.BaseExpression) -> bool:
    if not isinstance(node, cst.Name):
        return False
    return any(isinstance(given, cst.Lambda) for given in assigned(tree, node.value))


def _power_of_two_short(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.host(cst.Call):
        if tree.qualified(call.func) == "triton.next_power_of_2" and len(call.args) == 1:
            size = call.args[0].value
            yield mutation(put(tree, size, f"{atom(tree, size)} - 1"))


def _power_of_two_capped(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.host(cst.Call):
        if tree.qualified(call.func) == "triton.next_power_of_2" and len(call.args) == 1:
            outer = tree.parent(call)
            inner = tree.parent(outer) if isinstance(outer, cst.Arg) else None
            capped = isinstance(inner, cst.Call) and tree.text(inner.func) == "min"
            if not capped:
                yield mutation(put(tree, call, f"min({tree.text(call)}, 128)"))


_COUNTED = "for i in range({}):\n    tl.store(y_ptr + i, 1.0)"
_CDIV = "(triton.cdiv(n, BLOCK),)"
_PAIR = "(triton.cdiv(n, BLOCK), 2)"

LOOPS: tuple[Rule, ...] = (
    rule(
        "loop-start-late",
        "boundary",
        "a loop starts one step late",
        "the first tile is left out",
        _start,
        body(SUMMED, ("range(0, n, BLOCK)", "range(BLOCK, n, BLOCK)")),
        body(_COUNTED.format("n"), ("range(n)", "range(1, n)")),
        body(_COUNTED.format("2, n"), ("range(2, n)", "range(2 + 1, n)")),
    ),
    rule(
        "loop-end-minus-one",
        "boundary",
        "a loop's end e to e - 1",
        "the last element of a sum is left out",
        _stop("- 1"),
        body(SUMMED, ("range(0, n, BLOCK)", "range(0, n - 1, BLOCK)")),
        body(
            _COUNTED.format("tl.cdiv(n, BLOCK)"),
            ("range(tl.cdiv(n, BLOCK))", "range(tl.cdiv(n, BLOCK) - 1)"),
        ),
    ),
    rule(
        "loop-end-plus-one",
        "boundary",
        "a loop's end e to e + 1",
        "one step past the end",
        _stop("+ 1"),
        body(_COUNTED.format("n"), ("range(n)", "range(n + 1)")),
    ),
    rule(
        "loop-end-short",
        "boundary",
        "`range(a, e, s)` to `range(a, e - s, s)`",
        "the last tile is left out",
        _stop("step"),
        body(SUMMED, ("range(0, n, BLOCK)", "range(0, n - BLOCK, BLOCK)")),
    ),
    rule(
        "loop-step-double",
        "boundary",
        "a loop's step doubled",
        "every other tile is left out",
        _step_double,
        body(SUMMED, ("range(0, n, BLOCK)", "range(0, n, BLOCK * 2)")),
        body(_COUNTED.format("n"), ("range(n)", "range(0, n, 2)")),
    ),
    rule(
        "loop-tiles-floor",
        "boundary",
        "`tl.cdiv(n, B)` in a kernel to `n // B`",
        "the last, partial tile is left out",
        _floor_tiles,
        body(_COUNTED.format("tl.cdiv(n, BLOCK)"), ("tl.cdiv(n, BLOCK)", "n // BLOCK")),
    ),
    rule(
        "grid-floor",
        "boundary",
        "`triton.cdiv(n, B)` or `(n + B - 1) // B` of a launch to `n // B`",
        "the last, partial block is left out",
        _grid_floor,
        launched("", _CDIV, ("triton.cdiv(n, BLOCK)", "n // BLOCK")),
        launched("", "((n + BLOCK - 1) // BLOCK,)", ("(n + BLOCK - 1) // BLOCK", "n // BLOCK")),
    ),
    rule(
        "grid-minus-one",
        "boundary",
        "an extent of the grid less one",
        "the last block is left out",
        _grid_minus_one,
        launched("", _CDIV, ("triton.cdiv(n, BLOCK),)", "triton.cdiv(n, BLOCK) - 1,)")),
        launched(f"grid = {_CDIV}", "grid", ("BLOCK),)", "BLOCK) - 1,)")),
    ),
    rule(
        "grid-axis-swap",
        "boundary",
        "the first two extents of the grid exchanged",
        "a grid that fits square problems only",
        _grid_axis_swap,
        launched("", _PAIR, (_PAIR, "(2, triton.cdiv(n, BLOCK))")),
    ),
    rule(
        "block-halved",
        "boundary",
        "a block size that covers a dimension halved at the launch, the grid unchanged",
        "a grid computed for another block size, or a row longer than its block",
        _block_halved,
        launched("", _CDIV, ("BLOCK=BLOCK", "BLOCK=BLOCK // 2")),
    ),
    rule(
        "power-of-two-short",
        "boundary",
        "`triton.next_power_of_2(n)` to `triton.next_power_of_2(n - 1)`",
        "a block too small for sizes one above a power of two",
        _power_of_two_short,
        launched(
            "size = triton.next_power_of_2(n)",
            _CDIV,
            ("next_power_of_2(n)", "next_power_of_2(n - 1)"),
        ),
    ),
    rule(
        "power-of-two-capped",
        "boundary",
        "`triton.next_power_of_2(n)` to `min(triton.next_power_of_2(n), 128)`",
        "a block that holds short rows only",
        _power_of_two_capped,
        launched(
            "size = triton.next_power_of_2(n)",
            _CDIV,
            ("triton.next_power_of_2(n)", "min(triton.next_power_of_2(n), 128)"),
        ),
    ),
)
