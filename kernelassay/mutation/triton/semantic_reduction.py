"""The semantic family, in reductions and in what loops carry."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelassay.mutation.rule import Edit, Find, Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import SOFTMAX, SUMMED, body, rule, stored
from kernelassay.mutation.triton.match import (
    argument,
    binaries,
    infinity,
    lift,
    number,
    put,
    replace,
    value,
)
from kernelassay.mutation.triton.roles import REDUCTIONS, is_named_shift, is_rescale, is_shift
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import Carried, all_values, values_of

# -- functions exchanged ------------------------------------------------------------------------


def renamed(tree: TritonTree, call: cst.Call, new: str) -> Edit:
    """The edit that makes a call of ``tl.f`` one of ``tl.new``."""
    held = call.func
    return replace(tree, held.attr if isinstance(held, cst.Attribute) else held, new)


def exchanged(old: str, new: str) -> Find:
    """Calls of one function of numbers made calls of another."""

    def find(tree: TritonTree) -> Iterator[Mutation]:
        for call in tree.calls(old):
            # A name that was imported by itself cannot become another one's.
            if values_of(tree, call).is_number(call) and isinstance(call.func, cst.Attribute):
                yield mutation(renamed(tree, call, new))

    return find


def either(one: str, other: str) -> Find:
    """Calls of one function made calls of the other, and back."""

    def find(tree: TritonTree) -> Iterator[Mutation]:
        found = [m for a, b in ((one, other), (other, one)) for m in exchanged(a, b)(tree)]
        return iter(sorted(found, key=lambda m: m.edits[0].start))

    return find


def _axis(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls(*REDUCTIONS, "cumsum", "cumprod", "argmax", "argmin"):
        axis = value(call, 1, "axis")
        if axis is None or not isinstance(axis, cst.Integer):
            continue
        dimensions = _dimensions(tree, call)
        for other in range(dimensions):
            if other != int(axis.value):
                yield mutation(replace(tree, axis, str(other)))


def _dimensions(tree: TritonTree, call: cst.Call) -> int:
    """How many dimensions a reduced tile has, at least: by its axis, and by what indexes it."""
    held = call.args[0].value
    counts = [len(s.slice) for s in tree.nodes(cst.Subscript, within=held)]
    axis = value(call, 1, "axis")
    assert isinstance(axis, cst.Integer)
    return max([int(axis.value) + 1, *counts])


# -- start values -------------------------------------------------------------------------------


def _initials(tree: TritonTree) -> Iterator[tuple[Carried, cst.BaseExpression]]:
    for values in all_values(tree):
        for carried in values.carried:
            if values.kind(cst.Name(carried.name)) in ("value", "scalar"):
                yield carried, carried.initial.value


def _start(old: str, new: str) -> Find:
    """The start value of what a loop carries: a number, or the filling of a tile."""

    def find(tree: TritonTree) -> Iterator[Mutation]:
        for _, initial in _initials(tree):
            name = tree.callee(initial)
            held = value(initial, 1, "value") if name == "full" else initial
            if old == "0":
                if name == "zeros" and isinstance(initial, cst.Call):
                    shape = argument(initial, 0, "shape")
                    if shape is not None:
                        edge = tree.span(shape)[1]
                        yield mutation(renamed(tree, initial, "full"), Edit(edge, edge, f", {new}"))
                elif number(held) == 0:
                    yield mutation(put(tree, held, new))
            elif held is not None and infinity(tree, held) < 0:
                yield mutation(put(tree, held, new))

    return find


# -- what loops carry ---------------------------------------------------------------------------


def _drop_update(tree: TritonTree) -> Iterator[Mutation]:
    for values in all_values(tree):
        for carried in values.carried:
            if values.kind(cst.Name(carried.name)) not in ("value", "scalar"):
                continue
            for update in carried.updates:
                # `m = top`: what the loop has found is handed on to its next step.
                if not update.sign and isinstance(update.value, cst.Name):
                    yield mutation(replace(tree, update.node, "pass"))


def _drop_rescale(tree: TritonTree) -> Iterator[Mutation]:
    for node in binaries(tree, "*"):
        if values_of(tree, node).is_number(node) and is_rescale(tree, node):
            yield mutation(lift(tree, node, node.left))
    for values in all_values(tree):
        for carried in values.carried:
            for update in carried.updates:
                number_ = values.kind(cst.Name(carried.name)) in ("value", "scalar")
                if number_ and update.sign in ("*", "/") and len(carried.updates) > 1:
                    yield mutation(replace(tree, update.node, "pass"))


def _rescale_late(tree: TritonTree) -> Iterator[Mutation]:
    """``acc * alpha + e`` to ``(acc + e) * alpha``."""
    for node in binaries(tree, "+"):
        scaled = node.left
        if is_rescale(tree, scaled) and values_of(tree, node).is_number(node):
            left, factor = tree.full(scaled.left), tree.full(scaled.right)
            yield mutation(put(tree, node, f"({left} + {tree.full(node.right)}) * {factor}"))


def _drop_running(tree: TritonTree) -> Iterator[Mutation]:
    """``tl.maximum(m, e)`` to ``e`` where ``m`` is what a loop carries."""
    for call in tree.calls("maximum", "minimum"):
        sides = [arg.value for arg in call.args[:2]]
        carried = {c.name for c in values_of(tree, call).carried}
        if len(sides) < 2 or not values_of(tree, call).is_number(call):
            continue
        for side, other in (sides, sides[::-1]):
            if isinstance(side, cst.Name) and side.value in carried:
                yield mutation(lift(tree, call, other))


def _drop_shift(tree: TritonTree) -> Iterator[Mutation]:
    for node in binaries(tree, "-"):
        if is_shift(tree, node) or is_named_shift(tree, node):
            yield mutation(lift(tree, node, node.left))


def _stale_rescale(tree: TritonTree) -> Iterator[Mutation]:
    """``exp(m - top)`` to ``exp(top - top)``: the factor that rescales is always 1."""
    for node in binaries(tree, "-"):
        carried = {c.name for c in values_of(tree, node).carried}
        held = isinstance(node.left, cst.Name) and node.left.value in carried
        if held and is_shift(tree, node):
            yield mutation(replace(tree, node.left, tree.text(node.right)))


_TOP = "tl.maximum(m, tl.max(x, axis=0))"

REDUCTION_RULES: tuple[Rule, ...] = (
    rule(
        "sum-to-max",
        "semantic",
        "`tl.sum` to `tl.max`",
        "the wrong reduction",
        exchanged("sum", "max"),
        stored("tl.sum(x, axis=0)", "tl.max(x, axis=0)"),
    ),
    rule(
        "max-to-sum",
        "semantic",
        "`tl.max` to `tl.sum`, `tl.min` to `tl.sum`",
        "the wrong reduction",
        lambda tree: [*exchanged("max", "sum")(tree), *exchanged("min", "sum")(tree)],
        stored("tl.max(x, axis=0)", "tl.sum(x, axis=0)"),
    ),
    rule(
        "reduce-max-min-swap",
        "semantic",
        "`tl.max` to `tl.min` and back",
        "the wrong extremum",
        either("max", "min"),
        stored("tl.max(x, axis=0)", "tl.min(x, axis=0)"),
    ),
    rule(
        "maximum-minimum-swap",
        "semantic",
        "`tl.maximum` to `tl.minimum` and back",
        "the wrong extremum, as in a clamp with its ends exchanged",
        either("maximum", "minimum"),
        stored("tl.maximum(x, 0.0)", "tl.minimum(x, 0.0)"),
    ),
    rule(
        "reduce-axis",
        "semantic",
        "the axis of a reduction or a scan to another one of its tile",
        "reduced along the wrong dimension, which a square tile hides",
        _axis,
        stored("tl.sum(x[:, None] * x, axis=1)", "tl.sum(x[:, None] * x, axis=0)"),
    ),
    rule(
        "start-one",
        "semantic",
        "what a loop carries starts from 1 in place of 0",
        "a sum that starts from the identity of a product",
        _start("0", "1.0"),
        body(SUMMED, ("tl.zeros((BLOCK,), ", "tl.full((BLOCK,), 1.0, ")),
        body(SOFTMAX, ("s = 0.0", "s = 1.0")),
    ),
    rule(
        "start-zero",
        "semantic",
        "what a loop carries starts from 0 in place of minus infinity",
        "a maximum that no negative number can change",
        _start("-inf", "0.0"),
        body(SOFTMAX, ("m = float('-inf')", "m = 0.0")),
    ),
    rule(
        "drop-update",
        "semantic",
        "`m = top`, which hands a value on to a loop's next step, removed",
        "a running value that never changes",
        _drop_update,
        body(SOFTMAX, ("m = top", "pass")),
    ),
    rule(
        "drop-rescale",
        "semantic",
        "`acc * alpha + e` to `acc + e`",
        "online softmax that does not rescale what it has summed when the maximum rises",
        _drop_rescale,
        body(SOFTMAX, ("s * tl.exp(m - top)", "s")),
    ),
    rule(
        "rescale-late",
        "semantic",
        "`acc * alpha + e` to `(acc + e) * alpha`",
        "online softmax that rescales the new terms, too",
        _rescale_late,
        body(
            SOFTMAX,
            (
                "s * tl.exp(m - top) + tl.sum(tl.exp(x - top), axis=0)",
                "(s + tl.sum(tl.exp(x - top), axis=0)) * tl.exp(m - top)",
            ),
        ),
    ),
    rule(
        "rescale-stale",
        "semantic",
        "`exp(m - top)` to `exp(top - top)` where a loop carries m",
        "the maximum updated before its rise is taken",
        _stale_rescale,
        body(SOFTMAX, ("exp(m - top)", "exp(top - top)")),
    ),
    rule(
        "drop-running",
        "semantic",
        "`tl.maximum(m, e)` to `e` where a loop carries m",
        "the maximum of the last tile taken for that of all",
        _drop_running,
        body(SOFTMAX, (_TOP, "tl.max(x, axis=0)")),
    ),
    rule(
        "drop-stabiliser",
        "semantic",
        "`exp(x - m)` to `exp(x)`",
        "softmax without the maximum, which overflows",
        _drop_shift,
        body(SOFTMAX, ("tl.exp(m - top)", "tl.exp(m)"), ("tl.exp(x - top)", "tl.exp(x)")),
        body(
            "x = tl.load(x_ptr + tl.arange(0, BLOCK))\n"
            "d = x - tl.max(x, axis=0)\ntl.store(y_ptr, tl.sum(tl.exp(d), axis=0))",
            ("d = x - tl.max(x, axis=0)", "d = x"),
        ),
    ),
)
