"""Precision faults of storage: values held, summed, loaded or stored in too few bits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernelassay.mutation.bounds import as_loop
from kernelassay.mutation.examples import kernel
from kernelassay.mutation.match import (
    LOOPS,
    Update,
    accumulators,
    added,
    atom,
    binary,
    callee,
    declared_name,
    field,
    inputs,
    number,
    operator,
    pointer_root,
    pure,
    resolve,
    root_identifier,
    same,
    stores,
    strip,
    updates,
)
from kernelassay.mutation.rule import Edit, Example, Mutation, Rule
from kernelassay.mutation.semantic_statistics import is_epsilon
from kernelassay.mutation.tree import KernelTree, mutation, replace

_Find = Callable[[KernelTree], Iterator[Mutation]]


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


# -- sites ----------


def stored_values(tree: KernelTree) -> Iterator[Node]:
    """The float or float4 values that kernels store to global memory, literals left out."""
    for store in stores(tree):
        is_wide = tree.base_type(store.target) == "float4"
        is_float = tree.kind(store.target) == "float" and tree.is_float(store.value)
        if (is_float or is_wide) and number(tree, store.value) is None:
            yield store.value


def operand_loads(tree: KernelTree) -> Iterator[Node]:
    """Reads of a float or a float4 from a pointer-to-const parameter, in source order."""
    for node in tree.nodes("subscript_expression", "pointer_expression"):
        parent = tree.parent(node)
        if parent is not None and parent.type == "pointer_expression":
            continue  # the operand of & or of *
        if node.type == "pointer_expression" and operator(tree, node) != "*":
            continue
        if tree.kind(node) != "float" and tree.base_type(node) != "float4":
            continue
        if tree.kind(node) == "pointer":
            continue
        if pointer_root(tree, node) in inputs(tree, tree.function(node)):
            yield node


def _declaration(tree: KernelTree, update: Update) -> Node | None:
    """The declaration of the variable that an update sums into."""
    for node in tree.nodes("declaration", within=tree.function(update.node)):
        for declarator in node.children_by_field_name("declarator"):
            if declared_name(tree, declarator) == update.name:
                return node
    return None


def _groups(tree: KernelTree) -> Iterator[tuple[Node | None, tuple[Update, ...]]]:
    """Accumulators declared together, with all their updates: they share one type."""
    found: dict[int, tuple[Node | None, list[Update]]] = {}
    for _, changes in accumulators(tree):
        declaration = _declaration(tree, changes[0])
        key = declaration.id if declaration is not None else changes[0].node.id
        found.setdefault(key, (declaration, []))[1].extend(changes)
    for declaration, changes_ in found.values():
        yield declaration, tuple(changes_)


def _shared_arrays(tree: KernelTree) -> Iterator[tuple[str, list[Node]]]:
    """Each ``__shared__ float`` array with the values written to it, literals left out."""
    for function in (*tree.device_functions, *tree.kernels):
        for declaration in tree.nodes("declaration", within=function):
            words = tree.text(declaration).split()
            if "__shared__" not in words or "float" not in words:
                continue
            for declarator in declaration.children_by_field_name("declarator"):
                name = declared_name(tree, declarator)
                yield (
                    name,
                    [
                        value
                        for value in _written(tree, function, name)
                        if number(tree, value) is None
                    ],
                )


def _written(tree: KernelTree, function: Node, name: str) -> Iterator[Node]:
    for node in tree.nodes("assignment_expression", within=function):
        target = field(node, "left")
        reaches = root_identifier(tree, target) == name or pointer_root(tree, target) == name
        if reaches and tree.kind(target) == "float" and operator(tree, node) == "=":
            yield field(node, "right")


# -- formats ----------


def _accumulator(rounding: Rounding) -> _Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for _, changes in _groups(tree):
            edits = []
            for update in changes:
                target = tree.text(update.target)
                total = rounding.of(f"{target} + {added(tree, update)}")
                edits.append(replace(update.node, f"{target} = {total}"))
            yield rounding.mutant(tree, (), *edits)

    return find


def _store_temp(rounding: Rounding) -> _Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for value in stored_values(tree):
            yield rounding.mutant(tree, [value])

    return find


def _load_temp(rounding: Rounding) -> _Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        staged = {v.id for _, values in _shared_arrays(tree) for v in values}
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


def _shared(rounding: Rounding) -> _Find:
    def find(tree: KernelTree) -> Iterator[Mutation]:
        for _, values in _shared_arrays(tree):
            if values and not all(_is_count(tree, value) for value in values):
                yield rounding.mutant(tree, values)

    return find


# -- other ways to lose bits ----------


def _temporaries(tree: KernelTree) -> Iterator[Node]:
    """The computed values of float locals, and computed values that are stored."""
    for node in tree.nodes("init_declarator"):
        value = field(node, "value")
        if tree.kind(field(node, "declarator")) == "float" and strip(value).type in (
            "binary_expression",
            "call_expression",
            "conditional_expression",
        ):
            yield value
    for value in stored_values(tree):
        if tree.base_type(value) != "float4":
            yield value


def _in_order(nodes: Iterator[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: node.start_byte)


_COUNTS = re.compile(r"(\w+\.)?count\w*(\s*\+\s*(\w+\.)?count\w*)*")


def _is_count(tree: KernelTree, value: Node) -> bool:
    """Whether a float holds a number of elements: whole, and in range of what a test can hold."""
    return _COUNTS.fullmatch(tree.text(value)) is not None


def _float_to_int_trunc(tree: KernelTree) -> Iterator[Mutation]:
    for value in _in_order(_temporaries(tree)):
        if _is_count(tree, value):
            continue
        yield mutation(replace(value, f"(float)(int){atom(tree, value)}"))


def _saturate_fp16(tree: KernelTree) -> Iterator[Mutation]:
    for value in _in_order(_temporaries(tree)):
        if _is_small(tree, value) or _is_count(tree, value):
            continue
        text = f"fminf(fmaxf({tree.text(value)}, -65504.0f), 65504.0f)"
        yield mutation(replace(value, text))


_SMALL_CALLS = ("rsqrtf", "tanhf", "erff", "sinf", "cosf")


def _is_small(tree: KernelTree, value: Node, depth: int = 6) -> bool:
    """Whether a value stays within half's range for every input that is not degenerate itself.

    So do bounded functions, an exponential over a sum of such (softmax), and what is scaled by
    an inverse standard deviation: n values normalised by their own are at most the root of n.
    """
    source = resolve(tree, value)
    if depth == 0:
        return False
    if callee(tree, source) in _SMALL_CALLS:
        return True
    quotient, product = binary(tree, source, "/"), binary(tree, source, "*")
    if quotient:
        above, below = quotient
        is_logistic = number(tree, above) == 1 and bool(
            (total := binary(tree, below, "+")) and any(number(tree, t) == 1 for t in total)
        )
        return is_logistic or callee(tree, strip(above)) in ("expf", "__expf")
    deviation = any(binary(tree, side, "-") for side in product or ())
    return deviation and any(_is_small(tree, side, depth - 1) for side in product or ())


def _flush_denormals(tree: KernelTree) -> Iterator[Mutation]:
    for value in stored_values(tree):
        if tree.base_type(value) == "float4" or not pure(tree, value):
            continue
        one = atom(tree, value)
        text = f"fabsf({tree.text(value)}) < 1.17549435e-38f ? 0.0f : {one}"
        yield mutation(replace(value, text))


def _int_accumulator(tree: KernelTree) -> Iterator[Mutation]:
    for declaration, changes in _groups(tree):
        if declaration is None or "*" in tree.text(declaration):
            continue
        names = {u.name for u in changes}
        declared = {
            declared_name(tree, d) for d in declaration.children_by_field_name("declarator")
        }
        if declared == names and "{" not in tree.text(declaration):
            yield mutation(replace(field(declaration, "type"), "int"))


def _round_toward_zero(tree: KernelTree) -> Iterator[Mutation]:
    """All sums of one loop over the data at once: an error of one sign grows with its length."""
    found: dict[int, list[Edit]] = {}
    for function in (*tree.device_functions, *tree.kernels):
        for update in updates(tree, function):
            loop = tree.enclosing(update.node, *LOOPS)
            if loop is None or tree.kind(update.target) != "float" or not _over_data(tree, loop):
                continue
            target = tree.text(update.target)
            term = added(tree, update) if update.fused else tree.text(update.term)
            edit = replace(update.node, f"{target} = __fadd_rz({target}, {term})")
            found.setdefault(loop.id, []).append(edit)
    for edits in found.values():
        yield mutation(*edits)


def _over_data(tree: KernelTree, loop: Node) -> bool:
    """Whether a loop, or one around it, runs over a length that is known at run time only."""
    for node in (loop, *tree.ancestors(loop)):
        counted = as_loop(tree, node) if node.type == "for_statement" else None
        if counted is None or counted.test is None or counted.geometric:
            continue
        names = {tree.text(n) for n in tree.nodes("identifier", within=counted.test.bound)}
        if any(tree.declared_type(tree.function(loop), name) is not None for name in names):
            return True
    return False


def _double_to_float(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("primitive_type"):
        if tree.text(node) != "double":
            continue
        holder = tree.parent(node)
        if holder is None or holder.type not in ("declaration", "type_descriptor"):
            continue
        if "*" not in tree.text(holder):
            yield mutation(replace(node, "float"))


# -- the rules ----------

_FP16_LINE, _BF16_LINE = FP16.prelude, BF16.prelude
_DOT = "const float* a, const float* b, float* y, int n"


def _dot(
    update: str = "acc += a[k] * b[k]",
    declared: str = "float acc = 0.0f",
    value: str = "acc",
) -> str:
    return kernel(
        f"    {declared};\n    for (int k = 0; k < n; ++k) {update};\n    y[blockIdx.x] = {value};",
        _DOT,
    )


def _staged(first: str) -> str:
    return kernel(
        "    __shared__ float tile[32];\n"
        f"    tile[threadIdx.x] = {first};\n    __syncthreads();\n"
        "    y[threadIdx.x] = tile[31 - threadIdx.x];"
    )


def _stored(value: str, *, before: str = "") -> str:
    return before + kernel(f"    const float v = x[threadIdx.x];\n    y[threadIdx.x] = {value};")


def _of_store(before: str, *after: str) -> Example:
    return Example(_stored(before), tuple(map(_stored, after)))


def _rule(id_: str, what: str, bug: str, find: _Find, *examples: Example) -> Rule:
    return Rule(id_, "precision", what, bug, find, examples)


FP16_ACCUMULATOR = _rule(
    "fp16-accumulator",
    "every partial sum of an accumulator is rounded to half precision",
    "an accumulator of the operands' 16-bit type",
    _accumulator(FP16),
    Example(_dot(), (_FP16_LINE + _dot(f"acc = {FP16.of('acc + a[k] * b[k]')}"),)),
)
BF16_ACCUMULATOR = _rule(
    "bf16-accumulator",
    "every partial sum of an accumulator is rounded to bfloat16",
    "an accumulator of the operands' 16-bit type",
    _accumulator(BF16),
    Example(_dot(), (_BF16_LINE + _dot(f"acc = {BF16.of('acc + a[k] * b[k]')}"),)),
)
FP16_STORE_TEMP = _rule(
    "fp16-store-temp",
    "a stored value passes through half precision",
    "the result kept in a half variable before it is written",
    _store_temp(FP16),
    Example(_stored("v * 2.0f"), (_stored(FP16.of("v * 2.0f"), before=_FP16_LINE),)),
)
BF16_STORE_TEMP = _rule(
    "bf16-store-temp",
    "a stored value passes through bfloat16",
    "the result kept in a bfloat16 variable before it is written",
    _store_temp(BF16),
    Example(_stored("v * 2.0f"), (_stored(BF16.of("v * 2.0f"), before=_BF16_LINE),)),
)
FP16_LOAD_TEMP = _rule(
    "fp16-load-temp",
    "an operand passes through half precision on load",
    "inputs converted to half to use the faster path",
    _load_temp(FP16),
    Example(
        _dot(),
        (
            _FP16_LINE + _dot(f"acc += {FP16.of('a[k]')} * b[k]"),
            _FP16_LINE + _dot(f"acc += a[k] * {FP16.of('b[k]')}"),
        ),
    ),
)
BF16_LOAD_TEMP = _rule(
    "bf16-load-temp",
    "an operand passes through bfloat16 on load",
    "inputs converted to bfloat16 to use the faster path",
    _load_temp(BF16),
    Example(
        _dot(),
        (
            _BF16_LINE + _dot(f"acc += {BF16.of('a[k]')} * b[k]"),
            _BF16_LINE + _dot(f"acc += a[k] * {BF16.of('b[k]')}"),
        ),
    ),
)
TF32_OPERAND = _rule(
    "tf32-operand",
    "both operands of a summed product lose 13 bits of mantissa",
    "tensor cores fed with float32 operands",
    _tf32_operand,
    Example(_dot(), (_dot(f"acc += {TF32.of('a[k]')} * {TF32.of('b[k]')}"),)),
)
FP16_SHARED = _rule(
    "fp16-shared",
    "everything written to a shared array passes through half precision",
    "a shared tile of half values to fit more of it",
    _shared(FP16),
    Example(_staged("x[threadIdx.x]"), (_FP16_LINE + _staged(FP16.of("x[threadIdx.x]")),)),
)
ROUND_TOWARD_ZERO = _rule(
    "round-toward-zero",
    "`acc += e` to `acc = __fadd_rz(acc, e)` in a loop over the data",
    "a truncating unit or intrinsic: errors no longer cancel, and grow with the length",
    _round_toward_zero,
    Example(_dot(), (_dot("acc = __fadd_rz(acc, a[k] * b[k])"),)),
    _of_store("v * 3.0f"),
)
FLOAT_TO_INT_TRUNC = _rule(
    "float-to-int-trunc",
    "an intermediate is cast to int and back",
    "a value kept in an integer variable",
    _float_to_int_trunc,
    _of_store("v * 3.0f", "(float)(int)(v * 3.0f)"),
)
INT_ACCUMULATOR = _rule(
    "int-accumulator",
    "a float accumulator is declared int",
    "`int sum = 0` for a sum of floats",
    _int_accumulator,
    Example(_dot(), (_dot(declared="int acc = 0.0f"),)),
)
SATURATE_FP16 = _rule(
    "saturate-fp16",
    "an intermediate that can leave the range of half precision is clamped to it",
    "overflow of half hidden by saturation",
    _saturate_fp16,
    _of_store("v * 3.0f", "fminf(fmaxf(v * 3.0f, -65504.0f), 65504.0f)"),
    _of_store("tanhf(v)"),
)
FLUSH_DENORMALS = _rule(
    "flush-denormals",
    "a stored value below 2^-126 becomes 0",
    "flush-to-zero mode",
    _flush_denormals,
    _of_store("v * 3.0f", "fabsf(v * 3.0f) < 1.17549435e-38f ? 0.0f : (v * 3.0f)"),
)
DOUBLE_TO_FLOAT = _rule(
    "double-to-float",
    "a double variable or cast becomes float",
    "an intermediate that needs 53 bits kept in 24",
    _double_to_float,
    Example(
        _dot(declared="double acc = 0.0", value="(float)acc"),
        (_dot(declared="float acc = 0.0", value="(float)acc"),),
    ),
)
FP8_STORE_TEMP = _rule(
    "fp8-store-temp",
    "a stored value passes through the 8-bit format e4m3",
    "a result quantised to 8 bits",
    _store_temp(FP8),
    Example(_stored("v * 2.0f"), (_stored(FP8.of("v * 2.0f"), before=_E4M3),)),
)
