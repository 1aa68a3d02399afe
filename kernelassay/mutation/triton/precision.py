"""The precision family: where numbers are rounded, and to what.

A variable that a loop carries must keep its type in Triton, so a narrower accumulator is one that
is rounded at every update.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelassay.mutation.rule import Edit, Find, Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import SUMMED, body, launched, rule, stored
from kernelassay.mutation.triton.match import argument, atom, lift, number, put, replace, value
from kernelassay.mutation.triton.roles import MATH, accumulated, constants, numbers
from kernelassay.mutation.triton.semantic_reduction import renamed
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import Assignment, all_values, values_of

_NARROW = {"fp16": "float16", "bf16": "bfloat16", "int": "int32"}


def _rounded(tree: TritonTree, text: str, narrow: str) -> str:
    """The text of a tile rounded to a narrow type and back; ``text`` is an operand."""
    tl = tree.language
    return f"{text}.to({tl}.{_NARROW[narrow]}).to({tl}.float32)"


def _is_upcast(tree: TritonTree, node: cst.CSTNode | None) -> bool:
    """Whether a node is ``e.to(tl.float32)``."""
    return (
        isinstance(node, cst.Call)
        and tree.method(node) == "to"
        and len(node.args) == 1
        and tree.qualified(node.args[0].value) == "triton.language.float32"
    )


# -- values -------------------------------------------------------------------------------------


def _load(narrow: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for call in tree.calls("load"):
            if values_of(tree, call).kind(call) != "value":
                continue
            holder = tree.parent(call)
            cast = tree.parent(holder) if isinstance(holder, cst.Attribute) else None
            if _is_upcast(tree, cast):
                text = f"{tree.full(call)}.to({tree.language}.{_NARROW[narrow]})"
            else:
                text = _rounded(tree, tree.full(call), narrow)
            yield mutation(replace(tree, call, text))

    return find


def _temporaries(tree: TritonTree) -> Iterator[Assignment]:
    """What is computed into a name of its own, and is no accumulator of a loop."""
    for values in all_values(tree):
        carried = {c.name for c in values.carried}
        for a in values.assignments:
            given = a.value
            if a.sign or a.is_loop_variable or a.name in carried:
                continue
            while isinstance(given, cst.Subscript) or tree.method(given) == "to":
                given = given.value if isinstance(given, cst.Subscript) else given.func.value
            copied = isinstance(given, cst.Name) or tree.callee(given) in ("load", "zeros", "full")
            if values.kind(a.value) == "value" and not copied:
                yield a


def _temporary(narrow: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for a in _temporaries(tree):
            yield mutation(put(tree, a.value, _rounded(tree, atom(tree, a.value), narrow)))

    return find


def _store(narrow: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for call in tree.calls("store", "atomic_add"):
            held = value(call, 1, "value") or value(call, None, "val")
            if held is None or values_of(tree, call).kind(held) != "value":
                continue
            inner = held.func.value if tree.method(held) == "to" else held
            yield mutation(put(tree, inner, _rounded(tree, atom(tree, inner), narrow)))

    return find


def _accumulator(narrow: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        summed = {name for name, _ in accumulated(tree)}
        for values in all_values(tree):
            for carried in values.carried:
                dots = [tree.callee(u.value) == "dot" for u in carried.updates]
                if values.kind(cst.Name(carried.name)) != "value":
                    continue
                if carried.name in summed or any(dots):
                    yield mutation(*(_narrowed(tree, u, narrow) for u in carried.updates))

    return find


def _narrowed(tree: TritonTree, update: Assignment, narrow: str) -> Edit:
    if not update.sign:
        return put(tree, update.value, _rounded(tree, atom(tree, update.value), narrow))
    right = atom(tree, update.value) if update.sign in "-*/" else tree.full(update.value)
    whole = f"({update.name} {update.sign} {right})"
    return replace(tree, update.node, f"{update.name} = {_rounded(tree, whole, narrow)}")


# -- operations ---------------------------------------------------------------------------------


def _operand(narrow: str, *functions: str) -> Find:
    """The operand of a function rounded."""

    def find(tree: TritonTree) -> Iterator[Mutation]:
        for call in tree.calls(*functions):
            given = call.args[0].value if call.args else None
            if given is not None and values_of(tree, call).kind(given) == "value":
                yield mutation(put(tree, given, _rounded(tree, atom(tree, given), narrow)))

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
                        put(tree, side, f"{atom(tree, side)}.to({tree.language}.{_NARROW[narrow]})")
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


def _drop_upcast(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.nodes(cst.Call):
        if _is_upcast(tree, call):
            yield mutation(lift(tree, call, call.func.value))


def _late_upcast(tree: TritonTree) -> Iterator[Mutation]:
    for node in tree.nodes(cst.Call, cst.BinaryOperation):
        binary = isinstance(node, cst.BinaryOperation)
        if not binary and tree.callee(node) not in ("sum", "cumsum", "max", *MATH):
            continue
        if not binary and not node.args:
            continue
        sides = (node.left, node.right) if binary else (node.args[0].value,)
        # `e.to(tl.float32)[:, None]` is cast, too.
        casts = [side.value if isinstance(side, cst.Subscript) else side for side in sides]
        if all(_is_upcast(tree, cast) for cast in casts):
            drops = [
                Edit(tree.full_span(cast.func.value)[1], tree.span(cast)[1], "") for cast in casts
            ]
            start, end = tree.span(node)
            cast = f".to({tree.language}.float32)"
            opened, closed = ("(", f"){cast}") if binary else ("", cast)
            yield mutation(Edit(start, start, opened), *drops, Edit(end, end, closed))


def _reciprocal(narrow: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for node in numbers(tree, "/"):
            if values_of(tree, node).kind(node.right) == "value":
                inverse = _rounded(tree, f"(1.0 / {atom(tree, node.right)})", narrow)
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


def _scratch(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.host(cst.Call):
        if tree.qualified(call.func).startswith("torch."):
            dtype = value(call, None, "dtype")
            if dtype is not None and tree.qualified(dtype) == "torch.float32":
                yield mutation(replace(tree, dtype, "torch.float16"))


_HALF = ".to(tl.float16).to(tl.float32)"
_BRAIN = ".to(tl.bfloat16).to(tl.float32)"
_OFFSETS = "offs = tl.arange(0, BLOCK)\n"
_TILE = "i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]\n"
_DOT = (
    f"{_TILE}c = tl.dot(tl.load(x_ptr + i), tl.load(y_ptr + i), input_precision='ieee')\n"
    "tl.store(y_ptr + i, c)"
)


def _cast(text: str) -> str:
    return f"{_OFFSETS}x = tl.load(x_ptr + offs)\ntl.store(y_ptr + offs, {text})"


RULES: tuple[Rule, ...] = (
    *(
        rule(
            f"load-{narrow}",
            "precision",
            f"a loaded tile rounded to {_NARROW[narrow]}",
            "operands kept in a narrower type",
            _load(narrow),
            body(
                f"{_OFFSETS}x = tl.load(x_ptr + offs).to(tl.float32)\ntl.store(y_ptr + offs, x)",
                (".to(tl.float32)", cast),
            ),
            body(_cast("x"), ("x_ptr + offs)", f"x_ptr + offs){cast}")),
        )
        for narrow, cast in (("fp16", _HALF), ("bf16", _BRAIN))
    ),
    *(
        rule(
            f"temporary-{narrow}",
            "precision",
            f"a computed tile rounded to {_NARROW[narrow]}",
            bug,
            _temporary(narrow),
            stored("x * x + 1.0", f"(x * x + 1.0){cast}"),
            stored("tl.exp(x)", f"tl.exp(x){cast}"),
            stored("x"),
        )
        for narrow, cast, bug in (
            ("fp16", _HALF, "an intermediate kept in half precision"),
            ("bf16", _BRAIN, "an intermediate kept in bfloat16"),
            ("int", ".to(tl.int32).to(tl.float32)", "an intermediate cut to an integer"),
        )
    ),
    *(
        rule(
            f"store-{narrow}",
            "precision",
            f"a stored tile rounded to {_NARROW[narrow]} first",
            "a result rounded early",
            _store(narrow),
            body(_cast("x"), ("offs, x)", f"offs, x{cast})")),
            body(
                _cast("x.to(y_ptr.dtype.element_ty)"),
                ("x.to(y_ptr", f"x{cast}.to(y_ptr"),
            ),
        )
        for narrow, cast in (("fp16", _HALF), ("bf16", _BRAIN))
    ),
    *(
        rule(
            f"accumulator-{narrow}",
            "precision",
            f"a loop's accumulator rounded to {_NARROW[narrow]} at every update",
            f"a sum that is accumulated in {_NARROW[narrow]}",
            _accumulator(narrow),
            body(
                SUMMED.replace("tl.load(x_ptr + offs, mask=offs < n, other=0.0)", "x"),
                ("acc += x", f"acc = (acc + x){cast}"),
            ),
            body(
                "acc = tl.zeros((16, 16), dtype=tl.float32)\nfor k in range(n):\n"
                "    a = tl.load(x_ptr + k)\n    acc = tl.dot(a, a, acc)\ntl.store(y_ptr, acc)",
                ("tl.dot(a, a, acc)", f"tl.dot(a, a, acc){cast}"),
            ),
        )
        for narrow, cast in (("fp16", _HALF), ("bf16", _BRAIN))
    ),
    rule(
        "function-fp16",
        "precision",
        "the argument of an exponential, a root or the like rounded to float16",
        "a function evaluated in half precision",
        _operand("fp16", *MATH, "sqrt", "rsqrt"),
        stored("tl.exp(x + 1.0)", f"tl.exp((x + 1.0){_HALF})"),
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
            f"both operands of `tl.dot` in {_NARROW[narrow]}",
            "a matrix product of narrower operands",
            _dot_operands(narrow),
            body(
                _DOT,
                (
                    "tl.load(x_ptr + i), tl.load(y_ptr + i)",
                    f"tl.load(x_ptr + i).to(tl.{_NARROW[narrow]}), "
                    f"tl.load(y_ptr + i).to(tl.{_NARROW[narrow]})",
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
    rule(
        "drop-upcast",
        "precision",
        "`e.to(tl.float32)` to `e`",
        "arithmetic in the type of the inputs",
        _drop_upcast,
        body(_cast("x.to(tl.float32) * 2.0"), ("x.to(tl.float32)", "x")),
    ),
    rule(
        "late-upcast",
        "precision",
        "a cast to float32 moved from the operands to the result",
        "a cast after the operation that needs it",
        _late_upcast,
        body(
            _cast("tl.sum(x.to(tl.float32), axis=0)"),
            ("x.to(tl.float32), axis=0)", "x, axis=0).to(tl.float32)"),
        ),
        body(
            _cast("x.to(tl.float32)[:, None] * x.to(tl.float32)[None, :]"),
            (
                "x.to(tl.float32)[:, None] * x.to(tl.float32)[None, :]",
                "(x[:, None] * x[None, :]).to(tl.float32)",
            ),
        ),
    ),
    *(
        rule(
            f"reciprocal-{narrow}",
            "precision",
            f"`a / b` to `a * (1 / b)` with the reciprocal rounded to {_NARROW[narrow]}",
            "a coarse reciprocal",
            _reciprocal(narrow),
            stored("2.0 / tl.exp(x)", f"2.0 * (1.0 / tl.exp(x)){cast}"),
        )
        for narrow, cast in (("fp16", _HALF), ("bf16", _BRAIN))
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
    rule(
        "scratch-fp16",
        "precision",
        "a float32 tensor that host code makes to float16",
        "partial results handed on in half precision",
        _scratch,
        launched(
            "import torch\nscratch = torch.empty(n, dtype=torch.float32)",
            "(4,)",
            ("torch.float32", "torch.float16"),
        ),
    ),
)
