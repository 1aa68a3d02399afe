"""Precision faults of single operations: intrinsics, textbook forms, constants."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.activations import EXP, logistic_argument
from kernelassay.mutation.match import (
    atom,
    binary,
    call,
    fit,
    number,
    parse_number,
    pure,
    put,
    renaming,
    stores,
    strip,
    term,
)
from kernelassay.mutation.nodes import arguments, callee, calls, field
from kernelassay.mutation.precision_sites import of_store, precision_rule, stored
from kernelassay.mutation.rule import Edit, Example, Mutation
from kernelassay.mutation.semantic_activation import (
    constants,
    is_classical,
    significant_digits,
    truncated,
)
from kernelassay.mutation.semantic_statistics import is_epsilon
from kernelassay.mutation.tree import KernelTree, mutation, replace

_Quotient = tuple[Node, Node, Node]  # the division, its dividend, its divisor
_LOG1P = ("log1pf", "log1p")
# One Newton step from the bit-level estimate: a relative error of up to 1.8e-3.
_QUICK = """__device__ float quick_rsqrt(float v) {
    const float estimate = __uint_as_float(0x5f3759dfu - (__float_as_uint(v) >> 1));
    return estimate * (1.5f - 0.5f * v * estimate * estimate);
}
"""


# -- intrinsics ----------


def _fast_tanh(tree: KernelTree) -> Iterator[Mutation]:
    for node in calls(tree, "tanhf"):
        value = atom(tree, arguments(node)[0])
        text = f"1.0f - __fdividef(2.0f, __expf(2.0f * {value}) + 1.0f)"
        yield mutation(replace(node, f"({text})"))


def _quotients(tree: KernelTree) -> Iterator[_Quotient]:
    """Float divisions whose divisor is no power of two, with both sides."""
    for node in tree.nodes("binary_expression"):
        sides = binary(tree, node, "/")
        if not sides or tree.kind(node) != "float":
            continue
        divisor = number(tree, sides[1])
        if divisor is None or not divisor.hex().lstrip("-").startswith("0x1.0000000000000p"):
            yield node, *sides


def _preferred(tree: KernelTree, found: list[_Quotient]) -> list[_Quotient]:
    """One division of a source: of a stored element if there is such, else of a helper's value.

    The divisions of a kernel round alike; one per element shows the error on most outputs.
    """
    values = [store.value for store in stores(tree)]
    kernels = {kernel_.id for kernel_ in tree.kernels}

    def rank(quotient: _Quotient) -> int:
        node = quotient[0]
        if any(v.start_byte <= node.start_byte and node.end_byte <= v.end_byte for v in values):
            return 0
        return 1 if tree.function(node).id not in kernels else 2

    return sorted(found, key=rank)[:1]


def _fast_divide(tree: KernelTree) -> Iterator[Mutation]:
    for node, above, below in _preferred(tree, list(_quotients(tree))):
        text = f"__fdividef({tree.text(above)}, {tree.text(strip(below))})"
        yield mutation(replace(node, text))


def _reciprocal_multiply(tree: KernelTree) -> Iterator[Mutation]:
    found = [q for q in _quotients(tree) if number(tree, q[1]) != 1]
    for node, above, below in _preferred(tree, found):
        yield mutation(replace(node, f"{tree.text(above)} * (1.0f / {atom(tree, below)})"))


def _approx_rsqrt(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression", "call_expression"):
        if callee(tree, node) == "rsqrtf":
            yield mutation(Edit(0, 0, _QUICK), replace(field(node, "function"), "quick_rsqrt"))
            continue
        sides = binary(tree, node, "/") if node.type == "binary_expression" else None
        given = call(tree, sides[1], "sqrtf") if sides else None
        if sides and given and number(tree, sides[0]) == 1:
            yield mutation(replace(node, f"rsqrtf({tree.text(given[0])})"))


def _approx_sqrt(tree: KernelTree) -> Iterator[Mutation]:
    for node in calls(tree, "sqrtf"):
        value = arguments(node)[0]
        if pure(tree, value):
            yield mutation(put(tree, node, f"{atom(tree, value)} * rsqrtf({tree.text(value)})"))


# -- stabilisers ----------


def _epsilons(tree: KernelTree) -> Iterator[tuple[Node, Node | None, Node]]:
    """``(place, kept, eps)``: of a sum the other summand is kept, of a maximum nothing."""
    for node in tree.nodes("binary_expression", "call_expression"):
        if not tree.is_float(node):
            continue
        if node.type == "binary_expression":
            sides = binary(tree, node, "+")
            for kept, eps in (sides, sides[::-1]) if sides else ():
                if is_epsilon(tree, eps):
                    yield node, kept, eps
        elif callee(tree, node) in ("fmaxf", "fmax", "max"):
            for eps in arguments(node):
                if is_epsilon(tree, eps):
                    yield node, None, eps


def _eps_drop(tree: KernelTree) -> Iterator[Mutation]:
    for node, kept, eps in _epsilons(tree):
        yield mutation(replace(eps, "0.0f") if kept is None else put(tree, node, tree.text(kept)))


def _eps_enlarge(tree: KernelTree) -> Iterator[Mutation]:
    for _, _, eps in _epsilons(tree):
        value = parse_number(tree.text(eps))
        if value is None:
            yield mutation(replace(eps, f"10.0f * {atom(tree, eps)}"))
        else:
            suffix = "f" if tree.text(eps)[-1] in "fF" else ""
            yield mutation(replace(eps, f"{10 * value:.9g}{suffix}"))


# -- textbook forms ----------


def _log1p_naive(tree: KernelTree) -> Iterator[Mutation]:
    for node in calls(tree, "log1pf"):
        yield mutation(replace(node, f"logf(1.0f + {term(tree, arguments(node)[0])})"))


def _expm1_naive(tree: KernelTree) -> Iterator[Mutation]:
    for node in calls(tree, "expm1f"):
        yield mutation(put(tree, node, f"expf({tree.text(arguments(node)[0])}) - 1.0f"))


def _sigmoid_naive(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression"):
        sides = binary(tree, node, "/")
        value = logistic_argument(tree, sides[1]) if sides else None
        if sides and value is not None and tree.kind(node) == "float":
            exponential = f"expf({tree.text(strip(value))})"
            head = "" if number(tree, sides[0]) == 1 else f"{tree.text(sides[0])} * "
            text = f"{head}{exponential} / (1.0f + {exponential})"
            yield mutation(replace(node, text))


def _tanh_naive(tree: KernelTree) -> Iterator[Mutation]:
    for node in calls(tree, "tanhf"):
        value = arguments(node)[0]
        if pure(tree, value):
            up, down = f"expf({tree.text(value)})", f"expf(-{atom(tree, value)})"
            yield mutation(replace(node, f"(({up} - {down}) / ({up} + {down}))"))


def _softplus_naive(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("conditional_expression", "binary_expression"):
        if node.type == "conditional_expression":
            smooth = field(node, "alternative")
            for inner in calls(tree, *_LOG1P, within=smooth):
                given = call(tree, arguments(inner)[0], *EXP)
                if given:
                    text = _within(tree, smooth, inner, _softplus(tree, given[0]))
                    yield mutation(put(tree, node, text))
        else:
            found = _stable_softplus(tree, node)
            if found is not None:
                yield mutation(put(tree, node, _softplus(tree, found)))


def _softplus(tree: KernelTree, value: Node) -> str:
    return f"logf(1.0f + expf({tree.text(value)}))"


def _within(tree: KernelTree, outer: Node, inner: Node, text: str) -> str:
    data, base = tree.text(outer).encode(), outer.start_byte
    head, tail = data[: inner.start_byte - base], data[inner.end_byte - base :]
    return (head + fit(tree, inner, text).encode() + tail).decode()


def _stable_softplus(tree: KernelTree, node: Node) -> Node | None:
    """``v`` of ``fmaxf(v, 0) + log1pf(expf(-fabsf(v)))``."""
    sides = binary(tree, node, "+")
    for one, other in (sides, sides[::-1]) if sides else ():
        largest, smooth = call(tree, one, "fmaxf", "fmax"), call(tree, other, *_LOG1P)
        if largest and smooth and call(tree, smooth[0], *EXP):
            return next((v for v in largest if number(tree, v) is None), None)
    return None


def _low_precision_constant(tree: KernelTree) -> Iterator[Mutation]:
    for node, text, value in constants(tree):
        if is_classical(abs(value)) and significant_digits(text) > 4:
            yield mutation(replace(node, truncated(text, 4)))


# -- the rules ----------


_INTRINSIC = "a fast-math build, or an intrinsic chosen for speed"
_OVERFLOWS = "the textbook formula: it overflows where the function itself is harmless"

FAST_EXP = precision_rule(
    "fast-exp",
    "`expf` to `__expf`",
    _INTRINSIC,
    renaming({"expf": "__expf"}),
    of_store("expf(v)", "__expf(v)"),
)
FAST_LOG = precision_rule(
    "fast-log",
    "`logf`, `log2f`, `log10f` to their intrinsics",
    _INTRINSIC,
    renaming({"logf": "__logf", "log2f": "__log2f", "log10f": "__log10f"}),
    of_store("logf(v)", "__logf(v)"),
)
FAST_SIN_COS = precision_rule(
    "fast-sin-cos",
    "`sinf` to `__sinf`, `cosf` to `__cosf`",
    _INTRINSIC,
    renaming({"sinf": "__sinf", "cosf": "__cosf", "tanf": "__tanf"}),
    of_store("sinf(v) + cosf(v)", "__sinf(v) + cosf(v)", "sinf(v) + __cosf(v)"),
)
FAST_POW = precision_rule(
    "fast-pow",
    "`powf` to `__powf`",
    _INTRINSIC,
    renaming({"powf": "__powf"}),
    of_store("powf(v, 3.0f)", "__powf(v, 3.0f)"),
)
FAST_TANH = precision_rule(
    "fast-tanh",
    "`tanhf` by the fast exponential and the fast division",
    _INTRINSIC,
    _fast_tanh,
    of_store("tanhf(v)", "(1.0f - __fdividef(2.0f, __expf(2.0f * v) + 1.0f))"),
)
FAST_DIVIDE = precision_rule(
    "fast-divide",
    "`a / b` to `__fdividef(a, b)`",
    _INTRINSIC,
    _fast_divide,
    of_store("v / (v + 3.0f)", "__fdividef(v, v + 3.0f)"),
)
APPROX_RSQRT = precision_rule(
    "approx-rsqrt",
    "`1 / sqrtf(v)` to `rsqrtf(v)`; `rsqrtf(v)` to a bit-level estimate with one Newton step",
    "a fast inverse square root",
    _approx_rsqrt,
    of_store("1.0f / sqrtf(v)", "rsqrtf(v)"),
    Example(stored("rsqrtf(v)"), (_QUICK + stored("quick_rsqrt(v)"),)),
)
APPROX_SQRT = precision_rule(
    "approx-sqrt",
    "`sqrtf(v)` to `v * rsqrtf(v)`",
    "a square root by its approximate inverse: not a number at 0",
    _approx_sqrt,
    of_store("sqrtf(v)", "v * rsqrtf(v)"),
)
EPS_DROP = precision_rule(
    "eps-drop",
    "a stabilising epsilon is removed",
    "a division by zero on constant rows",
    _eps_drop,
    of_store("rsqrtf(v + 1e-5f)", "rsqrtf(v)"),
    of_store("v / fmaxf(v, 1e-8f)", "v / fmaxf(v, 0.0f)"),
)
EPS_ENLARGE = precision_rule(
    "eps-enlarge",
    "a stabilising epsilon becomes ten times as large",
    "the default epsilon of another framework",
    _eps_enlarge,
    of_store("rsqrtf(v + 1e-5f)", "rsqrtf(v + 0.0001f)"),
)
RECIPROCAL_MULTIPLY = precision_rule(
    "reciprocal-multiply",
    "`a / b` to `a * (1.0f / b)`",
    "a division hoisted out of a loop: two roundings in place of one",
    _reciprocal_multiply,
    of_store("v / 3.0f", "v * (1.0f / 3.0f)"),
)
LOG1P_NAIVE = precision_rule(
    "log1p-naive",
    "`log1pf(e)` to `logf(1 + e)`",
    "all digits of a small argument lost in the sum",
    _log1p_naive,
    of_store("log1pf(v)", "logf(1.0f + v)"),
)
EXPM1_NAIVE = precision_rule(
    "expm1-naive",
    "`expm1f(e)` to `expf(e) - 1`",
    "all digits of a small argument lost in the difference",
    _expm1_naive,
    of_store("2.0f * expm1f(v)", "2.0f * (expf(v) - 1.0f)"),
)
SIGMOID_NAIVE = precision_rule(
    "sigmoid-naive",
    "`1 / (1 + expf(-v))` to `expf(v) / (1 + expf(v))`",
    _OVERFLOWS,
    _sigmoid_naive,
    of_store("1.0f / (1.0f + expf(-v))", "expf(v) / (1.0f + expf(v))"),
)
TANH_NAIVE = precision_rule(
    "tanh-naive",
    "`tanhf(v)` to the quotient of exponentials",
    _OVERFLOWS,
    _tanh_naive,
    of_store("tanhf(v)", "((expf(v) - expf(-v)) / (expf(v) + expf(-v)))"),
)
SOFTPLUS_NAIVE = precision_rule(
    "softplus-naive",
    "softplus without its linear branch and without log1p",
    _OVERFLOWS,
    _softplus_naive,
    of_store("v > 20.0f ? v : log1pf(expf(v))", "logf(1.0f + expf(v))"),
    of_store("fmaxf(v, 0.0f) + log1pf(expf(-fabsf(v)))", "logf(1.0f + expf(v))"),
)
LOW_PRECISION_CONSTANT = precision_rule(
    "low-precision-constant",
    "pi, log2(e), sqrt(2) and their kin cut to four digits",
    "a constant typed from memory",
    _low_precision_constant,
    of_store("v * 3.14159265f", "v * 3.141f"),
)
