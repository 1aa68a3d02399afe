"""Precision faults of storage: values held, summed, loaded or stored in too few bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernelassay.mutation.examples import kernel
from kernelassay.mutation.match import LOOPS, Update, added, binary, resolve, same, strip, updates
from kernelassay.mutation.nodes import field
from kernelassay.mutation.precision_sites import (
    accumulator_groups,
    dot,
    is_count,
    operand_loads,
    precision_rule,
    shared_arrays,
    stored,
    stored_values,
)
from kernelassay.mutation.rule import Edit, Example, Find, Mutation
from kernelassay.mutation.semantic_statistics import is_epsilon
from kernelassay.mutation.tree import KernelTree, mutation, replace


@dataclass(frozen=True, slots=True)
class Rounding:
    """A way through a narrower format and back: the expression's pattern and what it needs."""

    pattern: str
    prelude: str = ""

    def of(self, text: str) -> str:
        """The rounded expression."""
        return self.pattern.format(text)

    def mutant(self, tree: KernelTree, values: Iterable[Node], *others: Edit) -> Mutation:
        """The mutant in which each of ``values`` (floats or float4s) passes through the format."""
        edits, has_vectors = list(others), False
        for value in values:
            is_vector = tree.base_type(value) == "float4"
            has_vectors |= is_vector
            text = tree.text(value)
            edits.append(replace(value, f"round_lanes({text})" if is_vector else self.of(text)))
        lanes = ", ".join(self.of(f"v.{lane}") for lane in "xyzw")
        helper = f"__device__ float4 round_lanes(float4 v) {{ return make_float4({lanes}); }}\n"
        prelude = self.prelude + (helper if has_vectors else "")
        if self.prelude.startswith("#include") and not has_vectors:
            prelude = "" if self.prelude.strip() in tree.source else self.prelude
        return mutation(*((Edit(0, 0, prelude),) if prelude else ()), *edits)


FP16 = Rounding("__half2float(__float2half({}))", "#include <cuda_fp16.h>\n")
BF16 = Rounding("__bfloat162float(__float2bfloat16({}))", "#include <cuda_bf16.h>\n")
TF32 = Rounding("__uint_as_float(__float_as_uint({}) & 0xffffe000u)")
# Arithmetic, so that no header and no device of a certain age is needed: 3 bits of mantissa,
# exponents down to -6, saturation at 448 (Open Compute Project, OFP8, E4M3).
_E4M3 = """__device__ float round_to_e4m3(float v) {
    const float a = fminf(fabsf(v), 448.0f);
    const unsigned exponent = __float_as_uint(a) >> 23;
    const float step = __uint_as_float(((exponent < 121u ? 121u : exponent) - 3u) << 23);
    const float rounded = rintf(a / step) * step;
    return v != v ? v : (v < 0.0f ? -rounded : rounded);
}
"""
FP8 = Rounding("round_to_e4m3({})", _E4M3)


# -- formats ----------


def _accumulator(rounding: Rounding) -> Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for _, changes in accumulator_groups(tree):
            edits = []
            for update in changes:
                target = tree.text(update.target)
                total = rounding.of(f"{target} + {added(tree, update)}")
                edits.append(replace(update.node, f"{target} = {total}"))
            yield rounding.mutant(tree, (), *edits)

    return find


def _store_temp(rounding: Rounding) -> Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for value in stored_values(tree):
            yield rounding.mutant(tree, [value])

    return find


def _load_temp(rounding: Rounding) -> Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        staged = {v.id for _, values in shared_arrays(tree) for v in values}
        kept = {strip(v).id for v in stored_values(tree)}
        for node in operand_loads(tree):
            # What goes straight to shared memory or to the output is the other rules' site.
            if node.id not in staged and node.id not in kept and not _is_beside_epsilon(tree, node):
                yield rounding.mutant(tree, [node])

    return find


def _is_beside_epsilon(tree: KernelTree, load: Node) -> bool:
    """Whether a load is summed with a stabiliser: a channel's variance, no element of a tensor."""
    around = tree.parent(load)
    sides = binary(tree, around, "+") if around is not None else None
    return sides is not None and any(is_epsilon(tree, side) for side in sides)


def _tf32_operand(tree: KernelTree) -> Iterator[Mutation]:
    """The operands of all products that one loop sums up: a tensor core takes whole tiles."""
    found: dict[int, list[Node]] = {}
    for function in (*tree.device_functions, *tree.kernels):
        for update in updates(tree, function):
            operands = list(_product_operands(tree, update))
            pairs = zip(operands[::2], operands[1::2], strict=True)
            if any(same(tree, *pair) for pair in pairs):
                continue  # a sum of squares is no product of matrices
            if all(tree.kind(o) == "float" and _is_operand(tree, o) for o in operands):
                loop = tree.enclosing(update.node, *LOOPS) or update.node
                found.setdefault(loop.id, []).extend(operands)
    for operands in found.values():
        if operands:
            yield TF32.mutant(tree, operands)


def _is_operand(tree: KernelTree, node: Node) -> bool:
    """Whether a factor is read from memory: what a tensor core would be fed with."""
    source = resolve(tree, node)
    if source.type == "conditional_expression":
        source = strip(field(source, "consequence"))
    return source.type == "subscript_expression" or (
        source.type == "field_expression" and tree.base_type(field(source, "argument")) == "float4"
    )


def _product_operands(tree: KernelTree, update: Update) -> Iterator[Node]:
    if update.fused:
        yield from update.fused
        return
    pending = [update.term]
    while pending:
        node = pending.pop(0)
        total, product = binary(tree, node, "+"), binary(tree, node, "*")
        if total:
            pending = [*total, *pending]
        elif product:
            yield from product


def _shared(rounding: Rounding) -> Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for _, values in shared_arrays(tree):
            if values and not all(is_count(tree, value) for value in values):
                yield rounding.mutant(tree, values)

    return find


# -- the rules ----------

_FP16_LINE, _BF16_LINE = FP16.prelude, BF16.prelude


def _staged(first: str) -> str:
    return kernel(
        "    __shared__ float tile[32];\n"
        f"    tile[threadIdx.x] = {first};\n    __syncthreads();\n"
        "    y[threadIdx.x] = tile[31 - threadIdx.x];"
    )


FP16_ACCUMULATOR = precision_rule(
    "fp16-accumulator",
    "every partial sum of an accumulator is rounded to half precision",
    "an accumulator of the operands' 16-bit type",
    _accumulator(FP16),
    Example(dot(), (_FP16_LINE + dot(f"acc = {FP16.of('acc + a[k] * b[k]')}"),)),
)
BF16_ACCUMULATOR = precision_rule(
    "bf16-accumulator",
    "every partial sum of an accumulator is rounded to bfloat16",
    "an accumulator of the operands' 16-bit type",
    _accumulator(BF16),
    Example(dot(), (_BF16_LINE + dot(f"acc = {BF16.of('acc + a[k] * b[k]')}"),)),
)
FP16_STORE_TEMP = precision_rule(
    "fp16-store-temp",
    "a stored value passes through half precision",
    "the result kept in a half variable before it is written",
    _store_temp(FP16),
    Example(stored("v * 2.0f"), (stored(FP16.of("v * 2.0f"), before=_FP16_LINE),)),
)
BF16_STORE_TEMP = precision_rule(
    "bf16-store-temp",
    "a stored value passes through bfloat16",
    "the result kept in a bfloat16 variable before it is written",
    _store_temp(BF16),
    Example(stored("v * 2.0f"), (stored(BF16.of("v * 2.0f"), before=_BF16_LINE),)),
)
FP16_LOAD_TEMP = precision_rule(
    "fp16-load-temp",
    "an operand passes through half precision on load",
    "inputs converted to half to use the faster path",
    _load_temp(FP16),
    Example(
        dot(),
        (
            _FP16_LINE + dot(f"acc += {FP16.of('a[k]')} * b[k]"),
            _FP16_LINE + dot(f"acc += a[k] * {FP16.of('b[k]')}"),
        ),
    ),
)
BF16_LOAD_TEMP = precision_rule(
    "bf16-load-temp",
    "an operand passes through bfloat16 on load",
    "inputs converted to bfloat16 to use the faster path",
    _load_temp(BF16),
    Example(
        dot(),
        (
            _BF16_LINE + dot(f"acc += {BF16.of('a[k]')} * b[k]"),
            _BF16_LINE + dot(f"acc += a[k] * {BF16.of('b[k]')}"),
        ),
    ),
)
TF32_OPERAND = precision_rule(
    "tf32-operand",
    "both operands of a summed product lose 13 bits of mantissa",
    "tensor cores fed with float32 operands",
    _tf32_operand,
    Example(dot(), (dot(f"acc += {TF32.of('a[k]')} * {TF32.of('b[k]')}"),)),
)
FP16_SHARED = precision_rule(
    "fp16-shared",
    "everything written to a shared array passes through half precision",
    "a shared tile of half values to fit more of it",
    _shared(FP16),
    Example(_staged("x[threadIdx.x]"), (_FP16_LINE + _staged(FP16.of("x[threadIdx.x]")),)),
)
FP8_STORE_TEMP = precision_rule(
    "fp8-store-temp",
    "a stored value passes through the 8-bit format e4m3",
    "a result quantised to 8 bits",
    _store_temp(FP8),
    Example(stored("v * 2.0f"), (stored(FP8.of("v * 2.0f"), before=_E4M3),)),
)
