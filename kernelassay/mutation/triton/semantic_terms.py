"""The semantic family, in scales, divisors and epsilons, and in what is stored."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelassay.mutation.rule import Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import SUMMED, body, rule, stored
from kernelassay.mutation.triton.match import (
    atom,
    binaries,
    binary,
    lift,
    names,
    number,
    put,
    replace,
    value,
)
from kernelassay.mutation.triton.roles import (
    is_epsilon,
    is_scale,
    numbers,
    scaled,
)
from kernelassay.mutation.triton.semantic_functions import of_one
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import all_values, values_of

# -- scales, divisors, epsilons -----------------------------------------------------------------


def _drop_scale(tree: TritonTree) -> Iterator[Mutation]:
    for node in binaries(tree, "*"):
        if is_scale(tree, node):
            yield mutation(lift(tree, node, scaled(tree, node)))


def _scale_squared(tree: TritonTree) -> Iterator[Mutation]:
    for node in binaries(tree, "*"):
        if is_scale(tree, node):
            tile = scaled(tree, node)
            factor = node.right if tile is node.left else node.left
            if isinstance(factor, cst.Name):
                yield mutation(put(tree, factor, f"({factor.value} * {factor.value})"))


def _drop_division(tree: TritonTree) -> Iterator[Mutation]:
    for node in numbers(tree, "/"):
        if number(node.left) is None:
            yield mutation(lift(tree, node, node.left))


def _drop_reciprocal(tree: TritonTree) -> Iterator[Mutation]:
    for node in numbers(tree, "/"):
        if number(node.left) is not None:
            yield mutation(lift(tree, node, node.right))


def _divisors(tree: TritonTree) -> Iterator[tuple[cst.BinaryOperation, cst.BaseExpression]]:
    """Divisions by a count: a parameter, or an integer that is computed from indices."""
    for node in numbers(tree, "/"):
        values = values_of(tree, node)
        held = isinstance(node.right, cst.Name) and node.right.value in values.function.parameters
        if (held or values.kind(node.right) == "int") and number(node.right) is None:
            yield node, node.right


def _divisor_minus_one(tree: TritonTree) -> Iterator[Mutation]:
    for _, divisor in _divisors(tree):
        yield mutation(put(tree, divisor, f"{atom(tree, divisor)} - 1"))


def _divisor_block(tree: TritonTree) -> Iterator[Mutation]:
    for node, divisor in _divisors(tree):
        values = values_of(tree, node)
        for name in values.function.parameters:
            if name in values.function.constexprs & values.indices:
                yield mutation(put(tree, divisor, name))


def _drop_epsilon(tree: TritonTree) -> Iterator[Mutation]:
    for node in numbers(tree, "+"):
        if is_epsilon(tree, node):
            yield mutation(lift(tree, node, node.left))


def _enlarge_epsilon(tree: TritonTree) -> Iterator[Mutation]:
    for node in numbers(tree, "+"):
        if is_epsilon(tree, node):
            yield mutation(put(tree, node.right, f"1000.0 * {atom(tree, node.right)}"))


def _epsilon_outside(tree: TritonTree) -> Iterator[Mutation]:
    for call, given in of_one(tree, "sqrt", "sqrt_rn"):
        if binary(given, "+") and is_epsilon(tree, given):
            root = f"{tree.text(call.func)}({tree.full(given.left)})"
            yield mutation(put(tree, call, f"{root} + {tree.full(given.right)}"))


def _one_minus(tree: TritonTree) -> Iterator[Mutation]:
    for node in numbers(tree, "-"):
        if number(node.left) == 1:
            yield mutation(lift(tree, node, node.right))


def _drop_square(tree: TritonTree) -> Iterator[Mutation]:
    for node in numbers(tree, "*"):
        if tree.text(node.left) == tree.text(node.right):
            yield mutation(lift(tree, node, node.left))


# -- what is stored -----------------------------------------------------------------------------


def _stored(tree: TritonTree) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
    for call in tree.calls("store", "atomic_add", "atomic_max", "atomic_min"):
        held = value(call, 1, "value") or value(call, None, "val")
        if held is not None and values_of(tree, call).kind(held) == "value":
            yield call, held


def _constant_output(tree: TritonTree) -> Iterator[Mutation]:
    for _, held in _stored(tree):
        yield mutation(put(tree, held, f"{atom(tree, held)} * 0"))


def _loaded(tree: TritonTree, call: cst.Call, held: cst.BaseExpression) -> Iterator[str]:
    """The loaded tiles of the store's own block of statements that its value depends on."""
    values = values_of(tree, call)
    sources = values.sources(held)
    outer = tree.enclosing(call, cst.IndentedBlock)
    for a in values.assignments:
        from_memory = not a.sign and any(tree.calls("load", within=a.value))
        computed = any(isinstance(n, cst.BinaryOperation) for n in _outside_loads(tree, a.value))
        same = tree.enclosing(a.node, cst.IndentedBlock) is outer
        if a.name in sources and from_memory and same and not computed:
            yield a.name


def _outside_loads(tree: TritonTree, node: cst.BaseExpression) -> list[cst.CSTNode]:
    loads = [tree.span(c) for c in tree.calls("load", within=node)]
    return [
        n
        for n in tree.nodes(cst.BinaryOperation, within=node)
        if not any(start <= tree.span(n)[0] < end for start, end in loads)
    ]


def _identity_output(tree: TritonTree) -> Iterator[Mutation]:
    for call, held in _stored(tree):
        inner = held.func.value if tree.method(held) == "to" else held  # the cast stays
        first = next(_loaded(tree, call, held), None)
        if first is not None and names(tree, inner) != [first]:
            yield mutation(replace(tree, inner, first))


def _stale_input(tree: TritonTree) -> Iterator[Mutation]:
    """A second factor or term taken from the first one's tile: ``a * b`` to ``a * a``."""
    for values in all_values(tree):
        tiles = {
            a.name
            for a in values.assignments
            if not a.sign and any(tree.calls("load", within=a.value))
        }
        for node in numbers(tree, "*", "+", "-"):
            left, right = (names(tree, side) for side in (node.left, node.right))
            pair = {*left, *right}
            here = tree.function(node) is values.function
            alike = len(left) == len(right) == 1 and type(node.left) is type(node.right)
            if here and alike and pair <= tiles and len(pair) == 2:
                yield mutation(replace(tree, _name(tree, node.right), left[0]))


def _name(tree: TritonTree, node: cst.BaseExpression) -> cst.CSTNode:
    wanted = names(tree, node)[0]
    return next(n for n in tree.nodes(cst.Name, within=node) if n.value == wanted)


_EPS = "x / tl.sqrt(x * x + 1e-5)"


TERMS: tuple[Rule, ...] = (
    rule(
        "drop-scale",
        "semantic",
        "a tile times a single number to the tile",
        "a forgotten scale, such as the 1/sqrt(d) of attention or the 0.5 of gelu",
        _drop_scale,
        stored("0.5 * x", "x"),
        stored("x * x"),
    ),
    rule(
        "scale-squared",
        "semantic",
        "a scale applied twice",
        "scores scaled by the caller and by the kernel",
        _scale_squared,
        body(
            "offs = tl.arange(0, BLOCK)\n"
            "x = tl.load(x_ptr + offs)\ntl.store(y_ptr + offs, x * scale)",
            ("x * scale", "x * (scale * scale)"),
            params="x_ptr, y_ptr, scale, BLOCK: tl.constexpr",
        ),
    ),
    rule(
        "drop-division",
        "semantic",
        "`a / b` to `a`",
        "a forgotten normalisation: the sum of a softmax, the count of a mean",
        _drop_division,
        stored("x / tl.exp(x)", "x"),
        stored("1.0 / x"),
    ),
    rule(
        "drop-reciprocal",
        "semantic",
        "`1 / b` to `b`",
        "a factor taken for its reciprocal",
        _drop_reciprocal,
        stored("x * (1.0 / tl.exp(x))", "x * (tl.exp(x))"),
    ),
    rule(
        "divisor-minus-one",
        "semantic",
        "a division by a count n to n - 1",
        "the unbiased estimate for the biased one",
        _divisor_minus_one,
        body(SUMMED.replace("axis=0))", "axis=0) / n)"), ("/ n", "/ (n - 1)")),
    ),
    rule(
        "divisor-block",
        "semantic",
        "a division by a count to one by a block's size",
        "the padded size taken for the true one, right for powers of two",
        _divisor_block,
        body(SUMMED.replace("axis=0))", "axis=0) / n)"), ("/ n", "/ BLOCK")),
    ),
    rule(
        "drop-epsilon",
        "semantic",
        "`v + eps` to `v`",
        "a forgotten epsilon",
        _drop_epsilon,
        stored(_EPS, "x / tl.sqrt(x * x)"),
    ),
    rule(
        "enlarge-epsilon",
        "semantic",
        "an epsilon a thousand times as large",
        "an epsilon of another operation",
        _enlarge_epsilon,
        stored(_EPS, "x / tl.sqrt(x * x + (1000.0 * 1e-5))"),
    ),
    rule(
        "epsilon-outside",
        "semantic",
        "`sqrt(v + eps)` to `sqrt(v) + eps`",
        "an epsilon in the wrong place",
        _epsilon_outside,
        stored(_EPS, "x / (tl.sqrt(x * x) + 1e-5)"),
    ),
    rule(
        "one-minus",
        "semantic",
        "`1 - e` to `e`",
        "a complement forgotten",
        _one_minus,
        stored("1.0 - tl.exp(x)", "tl.exp(x)"),
    ),
    rule(
        "drop-square",
        "semantic",
        "`e * e` to `e`",
        "a forgotten square",
        _drop_square,
        stored("x * x + 1.0", "x + 1.0"),
    ),
    rule(
        "operand-repeated",
        "semantic",
        "`a * b` of two loaded tiles to `a * a`",
        "one operand used twice",
        _stale_input,
        body(
            "offs = tl.arange(0, BLOCK)\n"
            "x = tl.load(x_ptr + offs)\nw = tl.load(w_ptr + offs)\ntl.store(y_ptr + offs, x * w)",
            ("x * w", "x * x"),
            params="x_ptr, w_ptr, y_ptr, BLOCK: tl.constexpr",
        ),
    ),
    rule(
        "constant-output",
        "semantic",
        "a stored tile to zeros",
        "a kernel that computes nothing",
        _constant_output,
        body(
            "offs = tl.arange(0, BLOCK)\ntl.store(y_ptr + offs, tl.load(x_ptr + offs))",
            ("tl.load(x_ptr + offs))", "tl.load(x_ptr + offs) * 0)"),
        ),
    ),
    rule(
        "identity-output",
        "semantic",
        "a stored tile to the loaded one it is computed from",
        "a kernel that copies its input",
        _identity_output,
        body(
            "offs = tl.arange(0, BLOCK)\n"
            "x = tl.load(x_ptr + offs)\ny = tl.exp(x)\ntl.store(y_ptr + offs, y)",
            ("offs, y)", "offs, x)"),
        ),
    ),
)
