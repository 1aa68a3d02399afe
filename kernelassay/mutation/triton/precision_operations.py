"""The precision family, in operations: functions, sums, products, quotients, constants."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelassay.mutation.rule import Edit, Find, Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import body, rule, stored
from kernelassay.mutation.triton.match import argument, atom, number, put, replace, value
from kernelassay.mutation.triton.precision_values import BRAIN, HALF, NARROW, rounded
from kernelassay.mutation.triton.roles import MATH, constants, numbers
from kernelassay.mutation.triton.semantic_reduction import renamed
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import values_of

# -- operations ---------------------------------------------------------------------------------


def _operand(narrow: str, *functions: str) -> Find:
    """The operand of a function rounded."""

    def find(tree: TritonTree) -> Iterator[Mutation]:
        for call in tree.calls(*functions):
            given = call.args[0].value if call.args else None
            if given is not None and values_of(tree, call).kind(given) == "value":
                yield mutation(put(tree, given, rounded(tree, atom(tree, given), narrow)))

    return find


def _reduction(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("sum", "cumsum"):
        given = call.args[0].value if call.args else None
        if given is not None and values_of(tree, call).kind(given) == "value":
            tl, end = tree.language, tree.span(call)[1]
            yield mutation(
                put(tree, given, f"{atom(tree, given)}.to({tl}.float16)"),
                Edit(end, end, f".to({tl}.float32)"),
            )


def _dot_operands(narrow: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for call in tree.calls("dot"):
            sides = value(call, 0, "input"), value(call, 1, "other")
            if all(side is not None for side in sides):
                yield mutation(
                    *(
                        put(tree, side, f"{atom(tree, side)}.to({tree.language}.{NARROW[narrow]})")
                        for side in sides
                    )
                )

    return find


def _dot_tf32(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("dot"):
        precision = argument(call, None, "input_precision")
        allowed = argument(call, None, "allow_tf32")
        if precision is not None and isinstance(precision.value, cst.SimpleString):
            if precision.value.evaluated_value != "tf32":
                yield mutation(replace(tree, precision.value, '"tf32"'))
        elif allowed is not None and tree.text(allowed.value) == "False":
            yield mutation(replace(tree, allowed.value, "True"))


def _reciprocal(narrow: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for node in numbers(tree, "/"):
            if values_of(tree, node).kind(node.right) == "value":
                inverse = rounded(tree, f"(1.0 / {atom(tree, node.right)})", narrow)
                text = f"{tree.full(node.left)} * {inverse}"
                yield mutation(replace(tree, node, text))

    return find


def _approximate(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("div_rn", "sqrt_rn"):
        if tree.callee(call) == "sqrt_rn":
            yield mutation(renamed(tree, call, "sqrt"))
        elif len(call.args) == 2:
            yield mutation(put(tree, call, " / ".join(atom(tree, a.value) for a in call.args)))


def _coarse_exp(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("exp"):
        if call.args and isinstance(call.func, cst.Attribute):
            given = call.args[0].value
            yield mutation(
                renamed(tree, call, "exp2"), put(tree, given, f"{atom(tree, given)} * 1.44")
            )


def _short_constant(tree: TritonTree) -> Iterator[Mutation]:
    for node in constants(tree):
        exact = number(node)
        short = float(f"{exact:.3g}") if exact is not None else exact
        if short is not None and short != exact:
            yield mutation(replace(tree, node, repr(short)))


_TILE = "i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]\n"


_DOT = (
    f"{_TILE}c = tl.dot(tl.load(x_ptr + i), tl.load(y_ptr + i), input_precision='ieee')\n"
    "tl.store(y_ptr + i, c)"
)


OPERATIONS: tuple[Rule, ...] = (
    rule(
        "function-fp16",
        "precision",
        "the argument of an exponential, a root or the like rounded to float16",
        "a function evaluated in half precision",
        _operand("fp16", *MATH, "sqrt", "rsqrt"),
        stored("tl.exp(x + 1.0)", f"tl.exp((x + 1.0){HALF})"),
    ),
    rule(
        "sum-fp16",
        "precision",
        "`tl.sum(e)` and `tl.cumsum(e)` in float16",
        "a reduction in half precision",
        _reduction,
        stored("tl.sum(x * x, axis=0)", "tl.sum((x * x).to(tl.float16), axis=0).to(tl.float32)"),
    ),
    *(
        rule(
            f"dot-{narrow}",
            "precision",
            f"both operands of `tl.dot` in {NARROW[narrow]}",
            "a matrix product of narrower operands",
            _dot_operands(narrow),
            body(
                _DOT,
                (
                    "tl.load(x_ptr + i), tl.load(y_ptr + i)",
                    f"tl.load(x_ptr + i).to(tl.{NARROW[narrow]}), "
                    f"tl.load(y_ptr + i).to(tl.{NARROW[narrow]})",
                ),
            ),
        )
        for narrow in ("fp16", "bf16")
    ),
    rule(
        "dot-tf32",
        "precision",
        "`tl.dot` with `input_precision` or `allow_tf32` set for exact products to TF32",
        "a matrix product that rounds its operands to TF32",
        _dot_tf32,
        body(_DOT, ("'ieee'", '"tf32"')),
        body(_DOT.replace("input_precision='ieee'", "allow_tf32=False"), ("False", "True")),
    ),
    *(
        rule(
            f"reciprocal-{narrow}",
            "precision",
            f"`a / b` to `a * (1 / b)` with the reciprocal rounded to {NARROW[narrow]}",
            "a coarse reciprocal",
            _reciprocal(narrow),
            stored("2.0 / tl.exp(x)", f"2.0 * (1.0 / tl.exp(x)){cast}"),
        )
        for narrow, cast in (("fp16", HALF), ("bf16", BRAIN))
    ),
    rule(
        "approximate-rounding",
        "precision",
        "`div_rn(a, b)` to `a / b`, `sqrt_rn` to `sqrt`",
        "the approximate operation for the exact one",
        _approximate,
        stored(
            "tl.sqrt_rn(tl.div_rn(x, x + 1.0))",
            "tl.sqrt(tl.div_rn(x, x + 1.0))",
            "tl.sqrt_rn(x / (x + 1.0))",
        ),
    ),
    rule(
        "exp-coarse",
        "precision",
        "`exp(e)` to `exp2(1.44 e)`",
        "a base-2 exponential with a rounded log2(e)",
        _coarse_exp,
        stored("tl.exp(-x)", "tl.exp2((-x) * 1.44)"),
    ),
    rule(
        "short-constant",
        "precision",
        "a constant cut to three digits",
        "a constant typed from memory",
        _short_constant,
        stored(
            "x * 0.7978845608 + x * 0.044715 + 0.5",
            "x * 0.798 + x * 0.044715 + 0.5",
            "x * 0.7978845608 + x * 0.0447 + 0.5",
        ),
    ),
)
