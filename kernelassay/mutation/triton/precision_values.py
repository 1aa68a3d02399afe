"""The precision family, in values: what is loaded, kept, accumulated and stored.

A variable that a loop carries must keep its type in Triton, so a narrower accumulator is one that
is rounded at every update.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelassay.mutation.rule import Edit, Find, Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import SUMMED, body, launched, rule, stored
from kernelassay.mutation.triton.match import atom, lift, put, replace, value
from kernelassay.mutation.triton.roles import MATH, accumulated
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import Assignment, all_values, values_of

NARROW = {"fp16": "float16", "bf16": "bfloat16", "int": "int32"}


def rounded(tree: TritonTree, text: str, narrow: str) -> str:
    """The text of a tile rounded to a narrow type and back; ``text`` is an operand."""
    tl = tree.language
    return f"{text}.to({tl}.{NARROW[narrow]}).to({tl}.float32)"


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
                text = f"{tree.full(call)}.to({tree.language}.{NARROW[narrow]})"
            else:
                text = rounded(tree, tree.full(call), narrow)
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
            yield mutation(put(tree, a.value, rounded(tree, atom(tree, a.value), narrow)))

    return find


def _store(narrow: str) -> Find:
    def find(tree: TritonTree) -> Iterator[Mutation]:
        for call in tree.calls("store", "atomic_add"):
            held = value(call, 1, "value") or value(call, None, "val")
            if held is None or values_of(tree, call).kind(held) != "value":
                continue
            inner = held.func.value if tree.method(held) == "to" else held
            yield mutation(put(tree, inner, rounded(tree, atom(tree, inner), narrow)))

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
        return put(tree, update.value, rounded(tree, atom(tree, update.value), narrow))
    right = atom(tree, update.value) if update.sign in "-*/" else tree.full(update.value)
    whole = f"({update.name} {update.sign} {right})"
    return replace(tree, update.node, f"{update.name} = {rounded(tree, whole, narrow)}")


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


def _scratch(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.host(cst.Call):
        if tree.qualified(call.func).startswith("torch."):
            dtype = value(call, None, "dtype")
            if dtype is not None and tree.qualified(dtype) == "torch.float32":
                yield mutation(replace(tree, dtype, "torch.float16"))


HALF = ".to(tl.float16).to(tl.float32)"


BRAIN = ".to(tl.bfloat16).to(tl.float32)"


_OFFSETS = "offs = tl.arange(0, BLOCK)\n"


def _cast(text: str) -> str:
    return f"{_OFFSETS}x = tl.load(x_ptr + offs)\ntl.store(y_ptr + offs, {text})"


VALUES: tuple[Rule, ...] = (
    *(
        rule(
            f"load-{narrow}",
            "precision",
            f"a loaded tile rounded to {NARROW[narrow]}",
            "operands kept in a narrower type",
            _load(narrow),
            body(
                f"{_OFFSETS}x = tl.load(x_ptr + offs).to(tl.float32)\ntl.store(y_ptr + offs, x)",
                (".to(tl.float32)", cast),
            ),
            body(_cast("x"), ("x_ptr + offs)", f"x_ptr + offs){cast}")),
        )
        for narrow, cast in (("fp16", HALF), ("bf16", BRAIN))
    ),
    *(
        rule(
            f"temporary-{narrow}",
            "precision",
            f"a computed tile rounded to {NARROW[narrow]}",
            bug,
            _temporary(narrow),
            stored("x * x + 1.0", f"(x * x + 1.0){cast}"),
            stored("tl.exp(x)", f"tl.exp(x){cast}"),
            stored("x"),
        )
        for narrow, cast, bug in (
            ("fp16", HALF, "an intermediate kept in half precision"),
            ("bf16", BRAIN, "an intermediate kept in bfloat16"),
            ("int", ".to(tl.int32).to(tl.float32)", "an intermediate cut to an integer"),
        )
    ),
    *(
        rule(
            f"store-{narrow}",
            "precision",
            f"a stored tile rounded to {NARROW[narrow]} first",
            "a result rounded early",
            _store(narrow),
            body(_cast("x"), ("offs, x)", f"offs, x{cast})")),
            body(
                _cast("x.to(y_ptr.dtype.element_ty)"),
                ("x.to(y_ptr", f"x{cast}.to(y_ptr"),
            ),
        )
        for narrow, cast in (("fp16", HALF), ("bf16", BRAIN))
    ),
    *(
        rule(
            f"accumulator-{narrow}",
            "precision",
            f"a loop's accumulator rounded to {NARROW[narrow]} at every update",
            f"a sum that is accumulated in {NARROW[narrow]}",
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
        for narrow, cast in (("fp16", HALF), ("bf16", BRAIN))
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
