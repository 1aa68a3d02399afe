"""The semantic family, in formulas: functions, conditions, scales, divisors, what is stored."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelassay.mutation.rule import Mutation, Rule, mutation
from kernelassay.mutation.triton.examples import SUMMED, body, rule, stored
from kernelassay.mutation.triton.match import (
    atom,
    binaries,
    binary,
    comparison,
    lift,
    names,
    number,
    put,
    replace,
    sign,
    value,
)
from kernelassay.mutation.triton.roles import (
    MATH,
    ROOTS,
    is_epsilon,
    is_fill,
    is_scale,
    numbers,
    scaled,
)
from kernelassay.mutation.triton.semantic_reduction import either, exchanged
from kernelassay.mutation.triton.tree import TritonTree
from kernelassay.mutation.triton.values import all_values, values_of

# -- functions ----------------------------------------------------------------------------------


def _of_one(tree: TritonTree, *functions: str) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
    for call in tree.calls(*functions):
        if len(call.args) == 1 and values_of(tree, call).is_number(call):
            yield call, call.args[0].value


def _drop_function(tree: TritonTree) -> Iterator[Mutation]:
    for call, given in _of_one(tree, *MATH):
        yield mutation(lift(tree, call, given))


def _double_argument(tree: TritonTree) -> Iterator[Mutation]:
    for _, given in _of_one(tree, *(f for f in MATH if f not in ("abs", "fabs"))):
        if not isinstance(given, cst.UnaryOperation):
            yield mutation(put(tree, given, f"2.0 * {atom(tree, given)}"))


def _drop_root(tree: TritonTree) -> Iterator[Mutation]:
    for call, given in _of_one(tree, *ROOTS):
        inverse = tree.callee(call) == "rsqrt"
        text = f"1.0 / {atom(tree, given)}" if inverse else tree.full(given)
        yield mutation(put(tree, call, text))


def _clamp_drop(tree: TritonTree) -> Iterator[Mutation]:
    for call in tree.calls("maximum", "minimum"):
        if len(call.args) < 2 or not values_of(tree, call).is_number(call):
            continue
        for kept, dropped in (call.args[:2], call.args[1::-1]):
            if values_of(tree, call).kind(dropped.value) == "scalar" or number(dropped.value) == 0:
                yield mutation(lift(tree, call, kept.value))


# -- conditions ---------------------------------------------------------------------------------


def _choices(
    tree: TritonTree,
) -> Iterator[tuple[cst.Call, cst.BaseExpression, cst.BaseExpression]]:
    for call in tree.calls("where"):
        arms = value(call, 1, "x"), value(call, 2, "y")
        if arms[0] is not None and arms[1] is not None:
            yield call, arms[0], arms[1]


def _choice_swap(tree: TritonTree) -> Iterator[Mutation]:
    for _, one, other in _choices(tree):
        yield mutation(replace(tree, one, tree.text(other)), replace(tree, other, tree.text(one)))


def _choice_first(tree: TritonTree) -> Iterator[Mutation]:
    for call, one, other in _choices(tree):
        if not is_fill(tree, other):
            yield mutation(lift(tree, call, one))


def _choice_second(tree: TritonTree) -> Iterator[Mutation]:
    for call, one, other in _choices(tree):
        # A bare number is no tile, and the tile would lose its shape.
        if not is_fill(tree, one) and values_of(tree, call).kind(other) == "value":
            yield mutation(lift(tree, call, other))


def _relax(tree: TritonTree) -> Iterator[Mutation]:
    other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
    for node in tree.nodes(cst.Comparison):
        sides, values = comparison(node), values_of(tree, node)
        if sides is None or sides[1] not in other:
            continue
        if values.is_number(sides[0]) or values.is_number(sides[2]):
            yield mutation(sign(tree, node, other[sides[1]]))


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
    for call, given in _of_one(tree, "sqrt", "sqrt_rn"):
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

FORMULA_RULES: tuple[Rule, ...] = (
    rule(
        "drop-function",
        "semantic",
        "`f(e)` to `e` for exponential, logarithm, sigmoid and the like",
        "a forgotten function",
        _drop_function,
        stored("x * tl.sigmoid(x)", "x * x"),
    ),
    rule(
        "double-argument",
        "semantic",
        "`f(e)` to `f(2 e)`",
        "a wrong slope, as in silu by sigmoid(2 x)",
        _double_argument,
        stored("tl.sigmoid(x)", "tl.sigmoid(2.0 * x)"),
    ),
    rule(
        "exp-base",
        "semantic",
        "`exp` to `exp2` and back",
        "a base-2 exponential without the factor log2(e)",
        either("exp", "exp2"),
        stored("tl.exp(x)", "tl.exp2(x)"),
    ),
    rule(
        "log-base",
        "semantic",
        "`log` to `log2` and back",
        "a base-2 logarithm without the factor log(2)",
        either("log", "log2"),
        stored("tl.log(x)", "tl.log2(x)"),
    ),
    rule(
        "sigmoid-to-exp",
        "semantic",
        "`sigmoid(e)` to `exp(e)`",
        "another activation's function",
        exchanged("sigmoid", "exp"),
        stored("x * tl.sigmoid(x)", "x * tl.exp(x)"),
    ),
    rule(
        "drop-root",
        "semantic",
        "`sqrt(e)` to `e`, `rsqrt(e)` to `1 / e`",
        "a norm without its root",
        _drop_root,
        stored("x / tl.sqrt(x + 1.0)", "x / (x + 1.0)"),
        stored("x * tl.rsqrt(x)", "x * (1.0 / x)"),
    ),
    rule(
        "root-inverse",
        "semantic",
        "`rsqrt` to `sqrt` and back",
        "a root taken for its reciprocal",
        either("sqrt", "rsqrt"),
        stored("x * tl.rsqrt(x)", "x * tl.sqrt(x)"),
    ),
    rule(
        "clamp-drop",
        "semantic",
        "`tl.maximum(e, c)` to `e` and to `c`, for a bound c",
        "one side of a clamp forgotten, or an activation",
        _clamp_drop,
        stored("tl.maximum(x, 0.0)", "x"),
    ),
    rule(
        "choice-swap",
        "semantic",
        "`tl.where(c, a, b)` to `tl.where(c, b, a)`",
        "the arms of a choice exchanged",
        _choice_swap,
        stored("tl.where(x > 0, x, 0.1 * x)", "tl.where(x > 0, 0.1 * x, x)"),
    ),
    rule(
        "choice-first",
        "semantic",
        "`tl.where(c, a, b)` to `a`",
        "a condition forgotten",
        _choice_first,
        stored("tl.where(x > 0, x, 0.1 * x)", "x"),
    ),
    rule(
        "choice-second",
        "semantic",
        "`tl.where(c, a, b)` to `b`",
        "a condition forgotten",
        _choice_second,
        stored("tl.where(x > 0, x, 0.1 * x)", "0.1 * x"),
        stored("tl.where(x > 0, x, 0.0)"),
    ),
    rule(
        "comparison-relax",
        "semantic",
        "`>` to `>=`, `<` to `<=` on numbers, and back",
        "a threshold that belongs to the wrong side",
        _relax,
        stored("tl.where(x > 0, x, 0.1 * x)", "tl.where(x >= 0, x, 0.1 * x)"),
    ),
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
