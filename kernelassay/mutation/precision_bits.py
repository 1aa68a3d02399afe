"""Precision faults of rounding, range and type: truncation, saturation, integers for floats."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.bounds import as_loop
from kernelassay.mutation.match import (
    LOOPS,
    added,
    atom,
    binary,
    declared_name,
    number,
    pure,
    resolve,
    strip,
    updates,
)
from kernelassay.mutation.nodes import arguments, callee, field
from kernelassay.mutation.precision_sites import (
    accumulator_groups,
    dot,
    is_count,
    of_store,
    precision_rule,
    stored_values,
)
from kernelassay.mutation.rule import Edit, Example, Mutation
from kernelassay.mutation.tree import KernelTree, mutation, replace


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


def _float_to_int_trunc(tree: KernelTree) -> Iterator[Mutation]:
    for value in _in_order(_temporaries(tree)):
        if is_count(tree, value):
            continue
        yield mutation(replace(value, f"(float)(int){atom(tree, value)}"))


def _saturate_fp16(tree: KernelTree) -> Iterator[Mutation]:
    for value in _in_order(_temporaries(tree)):
        if _is_small(tree, value) or is_count(tree, value):
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
    """Divisors, and what a logarithm or a reciprocal root is taken of.

    Elsewhere the error stays below 2^-126, which no tolerance sees.
    """
    for value in _in_order(_amplified(tree)):
        if pure(tree, value) and not is_count(tree, value) and not _is_lifted(tree, value):
            one = atom(tree, value)
            text = f"(fabsf({tree.text(value)}) < 1.17549435e-38f ? 0.0f : {one})"
            yield mutation(replace(value, text))


def _amplified(tree: KernelTree) -> Iterator[Node]:
    for node in tree.nodes("binary_expression"):
        sides = binary(tree, node, "/")
        if sides and tree.is_float(sides[1]) and number(tree, sides[1]) is None:
            yield sides[1]
    for node in tree.nodes("call_expression"):
        if callee(tree, node) in ("rsqrtf", "logf", "log2f", "__logf"):
            yield from arguments(node)[:1]


def _is_lifted(tree: KernelTree, value: Node) -> bool:
    """Whether a literal keeps a value away from zero (``v + eps``, ``fmaxf(v, 1e-12f)``), or it is
    cast from an integer."""
    source = strip(resolve(tree, value))
    if source.type == "cast_expression":
        return not tree.is_float(field(source, "value"))
    sides: tuple[Node, ...] = binary(tree, source, "+") or ()
    if callee(tree, source) in ("fmaxf", "max"):
        sides = tuple(arguments(source))
    return any(number(tree, side) is not None for side in sides)


def _int_accumulator(tree: KernelTree) -> Iterator[Mutation]:
    for declaration, changes in accumulator_groups(tree):
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

ROUND_TOWARD_ZERO = precision_rule(
    "round-toward-zero",
    "`acc += e` to `acc = __fadd_rz(acc, e)` in a loop over the data",
    "a truncating unit or intrinsic: errors no longer cancel, and grow with the length",
    _round_toward_zero,
    Example(dot(), (dot("acc = __fadd_rz(acc, a[k] * b[k])"),)),
    of_store("v * 3.0f"),
)
FLOAT_TO_INT_TRUNC = precision_rule(
    "float-to-int-trunc",
    "an intermediate is cast to int and back",
    "a value kept in an integer variable",
    _float_to_int_trunc,
    of_store("v * 3.0f", "(float)(int)(v * 3.0f)"),
)
INT_ACCUMULATOR = precision_rule(
    "int-accumulator",
    "a float accumulator is declared int",
    "`int sum = 0` for a sum of floats",
    _int_accumulator,
    Example(dot(), (dot(declared="int acc = 0.0f"),)),
)
SATURATE_FP16 = precision_rule(
    "saturate-fp16",
    "an intermediate that can leave the range of half precision is clamped to it",
    "overflow of half hidden by saturation",
    _saturate_fp16,
    of_store("v * 3.0f", "fminf(fmaxf(v * 3.0f, -65504.0f), 65504.0f)"),
    of_store("tanhf(v)"),
)
FLUSH_DENORMALS = precision_rule(
    "flush-denormals",
    "a divisor, or what a logarithm or a reciprocal root is taken of, becomes 0 below 2^-126",
    "flush-to-zero mode",
    _flush_denormals,
    of_store("3.0f / v", "3.0f / (fabsf(v) < 1.17549435e-38f ? 0.0f : v)"),
    of_store("logf(v)", "logf((fabsf(v) < 1.17549435e-38f ? 0.0f : v))"),
    of_store("v / (v + 1.0f)"),
    of_store("v * 3.0f"),
)
DOUBLE_TO_FLOAT = precision_rule(
    "double-to-float",
    "a double variable or cast becomes float",
    "an intermediate that needs 53 bits kept in 24",
    _double_to_float,
    Example(
        dot(declared="double acc = 0.0", value="(float)acc"),
        (dot(declared="float acc = 0.0", value="(float)acc"),),
    ),
)
