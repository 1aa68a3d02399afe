"""Reductions over one block of adjacent dimensions: sums, extrema, norms, variance, any and all.

A trailing block is reduced by rows, an inner one by columns, a whole tensor in two kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import fx

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.substrate.ctypes import FLOATING, c_type, function, literal
from kernelassay.substrate.layout import COLUMNS, ROWS, Span
from kernelassay.substrate.lowering import Context, Lowered, lowers, source
from kernelassay.substrate.operands import styled
from kernelassay.trace import meta

SPLIT, TREE, COMPENSATED, WIDE, ATOMIC = "split", "tree", "compensated", "wide", "atomic"

# The order of floats is that of these integers, so an integer atomic finds their extremum.
_FLOAT_KEYS = """
__device__ __forceinline__ int encode(float value) {
    const int bits = __float_as_int(value);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

__device__ __forceinline__ float decode(int key) {
    return __int_as_float(key < 0 ? key ^ 0x7fffffff : key);
}
"""


def _same(value: str, *_: str) -> str:
    return value


@dataclass(frozen=True)
class Reduction:
    """What is folded: C expressions for the start value, one element, two results, the end."""

    identity: str
    combine: Callable[[str, str], str]
    map: Callable[[str], str] = field(default=_same)
    finish: Callable[[str, str], str] = field(default=_same)

    def styles(self, accumulator: str) -> dict[str, dict[str, str | Callable[..., str]]]:
        """The styles beyond the common ones, each with what it substitutes."""
        found: dict[str, dict[str, str | Callable[..., str]]] = {SPLIT: {}, TREE: {}}
        if self.combine is _add and accumulator == "float":
            found[COMPENSATED] = {}
            found[WIDE] = {"ACC": "double", "IDENTITY": "0.0"}
        atomic = _atomic(self.combine("a", "b"), accumulator)
        return found if atomic is None else {**found, ATOMIC: atomic}


def _atomic(combined: str, accumulator: str) -> dict[str, str | Callable[..., str]] | None:
    """How an atomic folds ``combined`` whatever the order; None where that changes a rounding."""
    exact = {
        ("fmaxf(a, b)", "float"): "atomicMax",
        ("fminf(a, b)", "float"): "atomicMin",
        ("a | b", "int"): "atomicOr",
        ("a & b", "int"): "atomicAnd",
        ("a > b ? a : b", "int"): "atomicMax",
        ("a < b ? a : b", "int"): "atomicMin",
        ("a + b", "int"): "atomicAdd",
        ("a + b", "long long"): "atomicAdd",
    }
    if (combined, accumulator) not in exact:
        return None
    keys: dict[str, str | Callable[..., str]] = {
        "ATOMIC": exact[combined, accumulator],
        "KEY": accumulator,
        "KEYS": "",
        "ENCODE": _same,
        "DECODE": _same,
    }
    if accumulator == "float":
        encode, decode = (lambda v: f"encode({v})"), (lambda v: f"decode({v})")
        return {**keys, "KEY": "int", "KEYS": _FLOAT_KEYS, "ENCODE": encode, "DECODE": decode}
    if accumulator == "long long":
        return {**keys, "KEY": "unsigned long long"}
    return keys


def _add(a: str, b: str) -> str:
    return f"{a} + {b}"


@lowers("aten.sum.dim_IntList", "aten.sum.default", "aten.mean.dim", "aten.mean.default")
def lower_sum(node: fx.Node, context: Context) -> Lowered:
    """Sums and means."""
    dtype = meta(node).dtype
    is_mean = "mean" in str(node.target)
    finish = (lambda acc, count: f"{acc} / {count}") if is_mean else _same
    reduction = Reduction(literal(0, dtype), _add, finish=finish)
    return reduce(node, node, "mean" if is_mean else "sum", _dims(node), reduction)


@lowers("aten.prod.default", "aten.prod.dim_int")
def lower_product(node: fx.Node, context: Context) -> Lowered:
    """Products."""
    reduction = Reduction(literal(1, meta(node).dtype), lambda a, b: f"{a} * {b}")
    return reduce(node, node, "prod", _dims(node), reduction)


@lowers("aten.amax.default", "aten.amin.default", "aten.max.default", "aten.min.default")
def lower_extremum(node: fx.Node, context: Context) -> Lowered:
    """Largest and smallest values."""
    largest = "max" in str(node.target)
    reduction = _extremum(largest, meta(node).dtype)
    return reduce(node, node, "amax" if largest else "amin", _dims(node), reduction)


def lower_extremum_of_dim(node: fx.Node, context: Context) -> Lowered:
    """The values of ``max(dim)`` and ``min(dim)``; their indices must be unused."""
    output = context.only_output(node)
    largest = "max" in str(node.target)
    reduction = _extremum(largest, meta(output).dtype)
    return reduce(node, output, "amax" if largest else "amin", _dims(node), reduction)


@lowers(
    "aten.any.default", "aten.any.dim", "aten.any.dims",
    "aten.all.default", "aten.all.dim", "aten.all.dims",
)  # fmt: skip
def lower_quantifier(node: fx.Node, context: Context) -> Lowered:
    """Any and all, over bool tensors."""
    if meta(node.args[0]).dtype != "bool":
        raise UnsupportedError(f"{node.target} of {meta(node.args[0]).dtype}")
    if "any" in str(node.target):
        reduction = Reduction("0", lambda a, b: f"{a} | {b}", map=lambda v: f"({v} != 0)")
        return reduce(node, node, "any", _dims(node), reduction, accumulator="int")
    reduction = Reduction("1", lambda a, b: f"{a} & {b}", map=lambda v: f"({v} != 0)")
    return reduce(node, node, "all", _dims(node), reduction, accumulator="int")


@lowers("aten.linalg_vector_norm.default")
def lower_vector_norm(node: fx.Node, context: Context) -> Lowered:
    """Vector norms of any order."""
    dtype = meta(node).dtype
    order = float(node.args[1]) if len(node.args) > 1 else 2.0
    dims = node.args[2] if len(node.args) > 2 else None
    return reduce(node, node, "norm", dims, _norm(order, dtype))


@lowers("aten.var.correction")
def lower_variance(node: fx.Node, context: Context) -> Lowered:
    """Variance, in two passes or by Welford's update."""
    operand = node.args[0]
    if meta(operand).dtype != "float32":
        raise UnsupportedError(f"{node.target} of {meta(operand).dtype}")
    correction = node.kwargs.get("correction")
    values = {"CORRECTION": literal(1 if correction is None else correction, "float32")}
    span = Span.of(operand, node.args[1] if len(node.args) > 1 else None)
    shape = "rows" if span.is_trailing else "columns"
    names = ROWS if span.is_trailing else COLUMNS
    return Lowered(
        template="var",
        sources=styled(f"variance_{shape}", values, WIDE),
        operands=(("x", operand.name),),
        outputs=(("y", node.name),),
        nodes=(node.name,),
        scalars=lambda nodes: span.scalars(nodes, operand.name, names),
    )


def reduce(
    node: fx.Node,
    output: fx.Node,
    template: str,
    dims: Sequence[int] | int | None,
    reduction: Reduction,
    *,
    accumulator: str = "",
) -> Lowered:
    """The kernel that folds the first argument of ``node`` over ``dims`` into ``output``."""
    operand = node.args[0]
    span = Span.of(operand, dims)
    accumulator = accumulator or c_type(meta(output).dtype)
    values: dict[str, str | Callable[..., str]] = {
        "IN": c_type(meta(operand).dtype),
        "ACC": accumulator,
        "OUT": c_type(meta(output).dtype),
        "IDENTITY": reduction.identity,
        "MAP": reduction.map,
        "COMBINE": reduction.combine,
        "FINISH": reduction.finish,
    }
    if span.is_everything:
        shape, names = "reduce_full", ("", "n", "")
    else:
        shape, names = ("reduce_rows", ROWS) if span.is_trailing else ("reduce_columns", COLUMNS)
    scalar = f"{shape}_scalar_optimised" if shape == "reduce_rows" else f"{shape}_optimised"
    all_float = values["IN"] == values["ACC"] == values["OUT"] == "float"
    optimised = f"{shape}_optimised" if all_float else scalar
    sources = {PLAIN: source(f"{shape}_plain", **values), OPTIMISED: source(optimised, **values)}
    for style, changed in reduction.styles(accumulator).items():
        name = scalar if style == WIDE else f"{shape}_{style}"
        sources[style] = source(name, **{**values, **changed})
    return Lowered(
        template=template,
        sources=sources,
        operands=(("x", operand.name),),
        outputs=(("y", output.name),),
        nodes=(node.name,) if node is output else (node.name, output.name),
        scalars=lambda nodes: span.scalars(nodes, operand.name, names),
    )


def _dims(node: fx.Node) -> Sequence[int] | int | None:
    if str(node.target).endswith(".default") and len(node.args) < 2:
        return None
    return node.args[1] if len(node.args) > 1 else None


def _extremum(largest: bool, dtype: str) -> Reduction:
    if dtype in FLOATING:
        name = function("fmax" if largest else "fmin", dtype)
        return Reduction("-INFINITY" if largest else "INFINITY", lambda a, b: f"{name}({a}, {b})")
    if dtype != "int32":
        raise UnsupportedError(f"extremum of {dtype}")
    sign = ">" if largest else "<"
    return Reduction(
        "-INT_MAX - 1" if largest else "INT_MAX", lambda a, b: f"{a} {sign} {b} ? {a} : {b}"
    )


def _norm(order: float, dtype: str) -> Reduction:
    absolute, power = function("fabs", dtype), function("pow", dtype)
    zero = literal(0, dtype)
    if order == 2:
        root = function("sqrt", dtype)
        return Reduction(zero, _add, lambda v: f"{v} * {v}", lambda acc, _: f"{root}({acc})")
    if order == 1:
        return Reduction(zero, _add, lambda v: f"{absolute}({v})")
    if order in (float("inf"), float("-inf")):
        extremum = _extremum(order > 0, dtype)
        identity = zero if order > 0 else extremum.identity
        return Reduction(identity, extremum.combine, lambda v: f"{absolute}({v})")
    if order == 0:
        return Reduction(zero, _add, lambda v: f"({v} != {zero})")
    exponent, inverse = literal(order, dtype), literal(1 / order, dtype)
    return Reduction(
        zero,
        _add,
        lambda v: f"{power}({absolute}({v}), {exponent})",
        lambda acc, _: f"{power}({acc}, {inverse})",
    )
