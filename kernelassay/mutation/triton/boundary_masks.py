"""The boundary family, in masks: what is left out, what stands in for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import libcst as cst

from kernelassay.mutation.rule import Find, Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import ROWS, body, rule
from kernelassay.mutation.triton.match import (
    argument,
    atom,
    binaries,
    comparison,
    infinity,
    lift,
    number,
    operator,
    put,
    replace,
    sign,
    value,
    without_argument,
)
from kernelassay.mutation.triton.roles import is_fill
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import values_of

_MASK = {"load": 1, "store": 2}


def _masks(tree: TritonTree, *accesses: str) -> Iterator[tuple[cst.Call, cst.Arg]]:
    for call in tree.calls(*accesses):
        mask = argument(call, _MASK.get(tree.callee(call)), "mask")
        if mask is not None and mask is not call.args[0]:
            yield call, mask


def _mask_drop(access: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for call, mask in _masks(tree, access):
            # Without a mask nothing may say what stands in for what it leaves out.
            fill = argument(call, 2, "other") if access == "load" else None
            dropped = (mask,) if fill is None else (mask, fill)
            yield mutation(*without_argument(tree, call, *dropped))

    return find


def _mask_confusion(tree: TritonTree) -> Iterator[Mutation]:
    for call, mask in _masks(tree, "load", "store", "atomic_add", "atomic_max", "atomic_min"):
        if not isinstance(mask.value, cst.Name):
            continue
        values, at = values_of(tree, call), tree.span(call)[0]
        known = dict.fromkeys(
            a.name
            for a in values.assignments
            if values.kind(cst.Name(a.name)) == "mask" and tree.span(a.node)[1] <= at
        )
        names = list(known)
        if mask.value.value in known and len(names) > 1:
            following = names[(names.index(mask.value.value) + 1) % len(names)]
            yield mutation(replace(tree, mask.value, following))


# -- bound tests --------------------------------------------------------------------------------


def bounds(
    tree: TritonTree,
) -> Iterator[tuple[cst.Comparison, cst.BaseExpression, cst.BaseExpression]]:
    """The bound tests with their lesser and their greater side: ``a, n`` of ``a < n``."""
    for node in tree.nodes(cst.Comparison):
        sides = comparison(node)
        if sides is not None and values_of(tree, node).is_bound(node):
            left, sign_, right = sides
            yield (node, left, right) if sign_ in ("<", "<=") else (node, right, left)


def _widen(tree: TritonTree) -> Iterator[Mutation]:
    for node, less, greater in bounds(tree):
        if operator(node) in "<>":
            yield mutation(sign(tree, node, f"{operator(node)}="))
        else:
            lower = less if number(greater) is None else greater
            yield mutation(put(tree, lower, f"{atom(tree, lower)} - 1"))


def _narrow(tree: TritonTree) -> Iterator[Mutation]:
    for node, _, greater in bounds(tree):
        if operator(node) in "<>":
            yield mutation(put(tree, greater, f"{atom(tree, greater)} - 1"))
        else:
            yield mutation(sign(tree, node, operator(node)[0]))


def _skip_first(tree: TritonTree) -> Iterator[Mutation]:
    for node, less, _ in bounds(tree):
        if _is_mask(tree, node):
            text = f"({tree.text(node)}) & ({atom(tree, less)} > 0)"
            yield mutation(put(tree, node, text))


def _always_true(tree: TritonTree) -> Iterator[Mutation]:
    for node, less, _ in bounds(tree):
        if _is_mask(tree, node):
            yield mutation(put(tree, node, f"{atom(tree, less)} >= 0"))


def _is_mask(tree: TritonTree, node: cst.CSTNode) -> bool:
    """Whether a bound test is no condition of a branch or a loop."""
    for outer in tree.ancestors(node):
        if isinstance(outer, cst.While | cst.If | cst.IfExp | cst.Assert):
            return outer.test is not node
        if isinstance(outer, cst.BaseSmallStatement):
            return True
    return True


def _round_down(tree: TritonTree) -> Iterator[Mutation]:
    for node, _, greater in bounds(tree):
        if _is_mask(tree, node) and number(greater) is None:
            yield mutation(put(tree, greater, f"{atom(tree, greater)} // 16 * 16"))


def _sizes(tree: TritonTree, node: cst.CSTNode) -> list[str]:
    """The integer parameters that bound tests and loops of a function compare with."""
    values = values_of(tree, node)
    runtime = [p for p in values.function.parameters if p not in values.function.constexprs]
    shown = [
        tree.text(side)
        for test, *sides in bounds(tree)
        for side in sides
        if tree.function(test) is values.function
    ]
    for loop in tree.nodes(cst.For, within=values.function.node.body):
        shown += re.findall(r"\w+", tree.text(loop.iter))
    return [p for p in runtime if p in values.indices and p in shown]


def _wrong_size(tree: TritonTree) -> Iterator[Mutation]:
    for node, less, greater in bounds(tree):
        for side in (less, greater):
            sizes = _sizes(tree, node)
            if isinstance(side, cst.Name) and side.value in sizes:
                for other in sizes:
                    if other != side.value:
                        yield mutation(replace(tree, side, other))


def _drop_conjunct(tree: TritonTree) -> Iterator[Mutation]:
    for node in binaries(tree, "&"):
        if values_of(tree, node).kind(node) == "mask":
            yield mutation(lift(tree, node, node.right))
            yield mutation(lift(tree, node, node.left))


def _and_to_or(tree: TritonTree) -> Iterator[Mutation]:
    for node in binaries(tree, "&", "|"):
        if values_of(tree, node).kind(node) == "mask":
            yield mutation(sign(tree, node, "|" if operator(node) == "&" else "&"))


# -- fills --------------------------------------------------------------------------------------


def fills(tree: TritonTree) -> Iterator[cst.BaseExpression]:
    """What stands in for elements that a mask leaves out: ``other=``, an arm of a choice."""
    for call in tree.calls("load", "where"):
        if tree.callee(call) == "load":
            other = argument(call, 2, "other")
            if other is not None:
                yield other.value
            continue
        for arm in (value(call, 1, "x"), value(call, 2, "y")):
            literal = arm is not None and (infinity(tree, arm) or number(arm) is not None)
            if arm is not None and literal and is_fill(tree, arm):
                yield arm


def _fill(new: str, applies: Callable[[float | None, int], bool]) -> Find:
    """Fills changed to ``new`` where their number, or the sign of their infinity, asks for it."""

    def find(tree: TritonTree) -> Iterator[Mutation]:
        for node in fills(tree):
            if applies(number(node), infinity(tree, node)):
                yield mutation(put(tree, node, new))

    return find


def _fill_drop(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("load"):
        other = argument(call, 2, "other")
        if other is not None:
            yield mutation(*without_argument(tree, call, other))


def _masked_choice_drop(tree: TritonTree) -> Iterator[Mutation]:
    for node in fills(tree):
        arg = tree.parent(node)
        call = tree.parent(arg) if arg is not None else None
        if isinstance(call, cst.Call) and tree.callee(call) == "where":
            arms = (value(call, 1, "x"), value(call, 2, "y"))
            kept = next((a for a in arms if a is not None and a is not node), None)
            if kept is not None:
                yield mutation(lift(tree, call, kept))


_BLOCK = "offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
_MASKED = (
    f"{_BLOCK}x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)\n"
    "tl.store(y_ptr + offs, x, mask=offs < n)"
)
_ONE = f"{_BLOCK}m = offs < n\ntl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=m), mask=m)"
_TILE = (
    "r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)\n"
    "c = tl.arange(0, BLOCK)\n"
    "m = (r < n_rows)[:, None] & (c < n_cols)[None, :]\n"
    "tl.store(y_ptr + r[:, None] * n_cols + c[None, :], 1.0, mask=m)"
)
_TOP = (
    f"{_BLOCK}x = tl.load(x_ptr + offs, mask=offs < n, other=-float('inf'))\n"
    "tl.store(y_ptr, tl.max(x, axis=0))"
)
_CHOICE = (
    f"{_BLOCK}x = tl.load(x_ptr + offs)\n"
    "tl.store(y_ptr, tl.sum(tl.where(offs < n, x, 0.0), axis=0))"
)

MASKS: tuple[Rule, ...] = (
    rule(
        "mask-drop-load",
        "boundary",
        "`tl.load(p, mask=m, other=o)` to `tl.load(p)`",
        "reads past the end of a tensor, or of a row into the next",
        _mask_drop("load"),
        body(_MASKED, (", mask=offs < n, other=0.0", "")),
        body(_ONE, (", mask=m)", ")")),
    ),
    rule(
        "mask-drop-store",
        "boundary",
        "`tl.store(p, v, mask=m)` to `tl.store(p, v)`",
        "writes past the end of a tensor, or of a row into the next",
        _mask_drop("store"),
        body(_MASKED, ("x, mask=offs < n)", "x)")),
        body(f"{_BLOCK}tl.store(y_ptr + offs, 1.0, offs < n)", (", offs < n)", ")")),
    ),
    rule(
        "mask-confusion",
        "boundary",
        "the mask of an access to another mask of the kernel",
        "a row's mask where a column's belongs",
        _mask_confusion,
        body(
            f"{_BLOCK}low = offs < n\nhigh = offs >= n\ntl.store(y_ptr + offs, 1.0, mask=low)",
            ("mask=low", "mask=high"),
        ),
    ),
    rule(
        "mask-widen",
        "boundary",
        "a bound test `a < n` to `a <= n`, `a >= b` to `a >= b - 1`",
        "one element too many",
        _widen,
        body(_ONE, ("offs < n", "offs <= n")),
        body(_ONE.replace("offs < n", "offs >= n"), ("offs >= n", "offs >= n - 1")),
    ),
    rule(
        "mask-narrow",
        "boundary",
        "a bound test `a < n` to `a < n - 1`, `a <= b` to `a < b`",
        "the last element of each row is left out",
        _narrow,
        body(_ONE, ("offs < n", "offs < n - 1")),
        body(_ONE.replace("offs < n", "offs <= n"), ("offs <= n", "offs < n")),
    ),
    rule(
        "mask-skip-first",
        "boundary",
        "a mask `a < n` to `(a < n) & (a > 0)`",
        "the first element of each row is left out",
        _skip_first,
        body(_ONE, ("offs < n", "(offs < n) & (offs > 0)")),
        body(_ONE.replace("offs < n", "n >= offs"), ("n >= offs", "(n >= offs) & (offs > 0)")),
    ),
    rule(
        "mask-true",
        "boundary",
        "a mask `a < n` to `a >= 0`",
        "a test of the wrong end, which is always true",
        _always_true,
        body(_ONE, ("offs < n", "offs >= 0")),
    ),
    rule(
        "mask-round-down",
        "boundary",
        "a mask `a < n` to `a < n // 16 * 16`",
        "the remainder of a size that is no multiple of the vector's is left out",
        _round_down,
        body(_ONE, ("offs < n", "offs < n // 16 * 16")),
    ),
    rule(
        "mask-wrong-size",
        "boundary",
        "the size of a bound test to another size of the kernel",
        "rows compared with the number of columns",
        _wrong_size,
        body(_TILE, ("r < n_rows", "r < n_cols"), ("c < n_cols", "c < n_rows"), params=ROWS),
    ),
    rule(
        "mask-drop-conjunct",
        "boundary",
        "`m & k` to `k` and to `m`",
        "only one of a tile's two sides is guarded",
        _drop_conjunct,
        body(
            _TILE,
            ("(r < n_rows)[:, None] & ", ""),
            (" & (c < n_cols)[None, :]", ""),
            params=ROWS,
        ),
    ),
    rule(
        "mask-and-to-or",
        "boundary",
        "`m & k` to `m | k` and back",
        "a tile guarded where both sides are outside only",
        _and_to_or,
        body(_TILE, (" & ", " | "), params=ROWS),
    ),
    rule(
        "fill-zero",
        "boundary",
        "a fill that is not 0 to 0.0",
        "padding takes part in a maximum or in a sum of exponentials",
        _fill("0.0", lambda number_, infinite: bool(infinite or number_)),
        body(_TOP, ("-float('inf')", "0.0")),
    ),
    rule(
        "fill-one",
        "boundary",
        "a fill of 0 to 1.0",
        "padding takes part in a sum",
        _fill("1.0", lambda number_, _: number_ == 0),
        body(_MASKED, ("other=0.0", "other=1.0")),
        body(_CHOICE, ("x, 0.0", "x, 1.0")),
    ),
    rule(
        "fill-minus-infinity",
        "boundary",
        "a fill of 0 to minus infinity",
        "the fill of a maximum where a sum follows",
        _fill("-float('inf')", lambda number_, _: number_ == 0),
        body(_MASKED, ("other=0.0", "other=-float('inf')")),
    ),
    rule(
        "fill-finite",
        "boundary",
        "a fill of minus infinity to -1.0",
        "a sentinel that data may fall below",
        _fill("-1.0", lambda _, infinite: infinite < 0),
        body(_TOP, ("-float('inf')", "-1.0")),
    ),
    rule(
        "fill-drop",
        "boundary",
        "`tl.load(p, mask=m, other=o)` to `tl.load(p, mask=m)`",
        "what a mask leaves out is undefined",
        _fill_drop,
        body(_MASKED, (", other=0.0", "")),
    ),
    rule(
        "fill-choice-drop",
        "boundary",
        "`tl.where(mask, e, fill)` to `e`",
        "padding takes part in a reduction",
        _masked_choice_drop,
        body(_CHOICE, ("tl.where(offs < n, x, 0.0)", "x")),
    ),
)
