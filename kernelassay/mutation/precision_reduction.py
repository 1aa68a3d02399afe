"""Precision faults of whole algorithms: softmax, variance, compensated and tree sums."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from tree_sitter import Node

from kernelassay.mutation.activations import EXP, MAX
from kernelassay.mutation.examples import kernel
from kernelassay.mutation.match import (
    Update,
    atom,
    binary,
    call,
    declared_name,
    definition,
    expand,
    pure,
    put,
    resolve,
    root_identifier,
    same,
    strip,
    updates,
)
from kernelassay.mutation.nodes import arguments, callee, calls, field, names_in, operator
from kernelassay.mutation.rule import Edit, Example, Mutation, Rule
from kernelassay.mutation.semantic_divisors import count_division
from kernelassay.mutation.tree import KernelTree, mutation, replace

_LOG = ("logf", "log", "__logf", "log2f")
_MAXIMUM = re.compile(r"max|largest|highest|peak")
SHUFFLES = ("__shfl_down_sync", "__shfl_xor_sync")


# -- the maximum in a softmax ----------


def _maxima(tree: KernelTree, function: Node) -> set[str]:
    """The variables of ``function`` that hold a maximum: updated by fmaxf, or called one."""
    found: set[str] = set()
    nodes = list(tree.nodes("init_declarator", "assignment_expression", within=function))
    for node in nodes * 2:  # a copy may stand before the update that shows what it copies
        if node.type == "init_declarator":
            name, value = declared_name(tree, node), field(node, "value")
        else:
            name, value = root_identifier(tree, field(node, "left")), field(node, "right")
        called = callee(tree, strip(value))
        is_copy = tree.text(value) in found  # the maximum before it grows
        if name and (called in MAX or "max" in called or _MAXIMUM.search(name) or is_copy):
            found.add(name)
    return found


def _drop_stabiliser(tree: KernelTree) -> Iterator[Mutation]:
    for function in (*tree.device_functions, *tree.kernels):
        if not any(calls(tree, *EXP, "exp2f", within=function)):
            continue
        maxima = _maxima(tree, function)
        edits: list[Edit] = []
        for node in tree.nodes("binary_expression", within=function):
            edit = _without_maximum(tree, node, maxima)
            if edit is not None and not any(e.start <= edit.start < e.end for e in edits):
                edits.append(edit)
        if edits:
            yield mutation(*edits)


def _without_maximum(tree: KernelTree, node: Node, maxima: set[str]) -> Edit | None:
    """``v - m`` to ``v``; ``m_old - m_new`` to 0; ``m + logf(s)`` to ``logf(s)``."""
    sides = binary(tree, node, "-", "+")
    if not sides or not tree.is_float(node):
        return None
    if operator(tree, node) == "-":
        if root_identifier(tree, sides[1]) not in maxima:
            return None
        both = root_identifier(tree, sides[0]) in maxima
        return put(tree, node, "0.0f" if both else tree.text(sides[0]))
    for one, other in (sides, sides[::-1]):
        if root_identifier(tree, one) in maxima and call(tree, resolve(tree, other), *_LOG):
            return put(tree, node, tree.text(other))
    return None


# -- variance ----------


def _two_moment_variance(tree: KernelTree) -> Iterator[Mutation]:
    for function in (*tree.device_functions, *tree.kernels):
        changes = list(updates(tree, function))
        for update in changes:
            alone = [u for u in changes if u.name == update.name and u.term != update.term]
            squared = None if alone else _squared_deviation(tree, update)
            if squared is None:
                continue
            value, mean = squared
            edits = _subtract_square(tree, function, update.name, mean)
            if edits:
                yield mutation(replace(update.term, f"{value} * {value}"), *edits)
    yield from _two_moment_struct(tree)


def _two_moment_struct(tree: KernelTree) -> Iterator[Mutation]:
    """The same for moments kept in a struct with ``mean`` and ``m2``, merged by Chan's rule."""
    edits: list[Edit] = []
    for node in tree.nodes("assignment_expression"):
        target, value = field(node, "left"), field(node, "right")
        if not tree.text(target).endswith((".m2", "->m2")):
            continue
        if operator(tree, node) == "+=":
            sides = binary(tree, value, "*")
            deviation = binary(tree, expand(tree, sides[0]), "-") if sides else None
            if not deviation or not pure(tree, deviation[0]):
                return
            one = atom(tree, deviation[0])
            edits.append(replace(value, f"{one} * {one}"))
        else:
            total = binary(tree, value, "+")
            if total and binary(tree, total[1], "*"):
                edits.append(put(tree, value, tree.text(total[0])))
    divisions = 0
    for node in tree.nodes("binary_expression"):
        found = count_division(tree, node)
        if found and tree.text(found[0]).endswith(".m2"):
            mean = tree.text(found[0]).removesuffix("m2") + "mean"
            edits.append(replace(node, f"({tree.text(node)} - {mean} * {mean})"))
            divisions += 1
    if divisions and len(edits) > divisions:
        yield mutation(*edits)


def _squared_deviation(tree: KernelTree, update: Update) -> tuple[str, Node] | None:
    """``(x, mean)`` of an added ``(x - mean)^2`` or of Welford's ``delta * (x - mean)``."""
    sides = binary(tree, update.term, "*")
    if not sides:
        return None
    deviations = [binary(tree, expand(tree, side), "-") for side in sides]
    first, second = deviations
    if not first or not second or not same(tree, first[0], second[0]):
        return None
    mean = strip(first[1])
    if mean.type != "identifier" or not same(tree, mean, second[1]) or not pure(tree, first[0]):
        return None
    return atom(tree, first[0]), mean


def _subtract_square(tree: KernelTree, function: Node, name: str, mean: Node) -> list[Edit]:
    """The edits that turn ``squares / count`` into a difference of moments."""
    mean_text, edits = tree.text(mean), []
    total = definition(tree, mean)
    mean_division = count_division(tree, total) if total is not None else None
    for node in tree.nodes("binary_expression", within=function):
        found = count_division(tree, node)
        if found is None or name not in names_in(tree, found[0]):
            continue
        if mean_division is None or same(tree, mean_division[1], found[1]):
            edits.append(replace(node, f"({tree.text(node)} - {mean_text} * {mean_text})"))
        else:  # n - 1 below: subtract n times the squared mean above
            count = atom(tree, mean_division[1])
            above = f"({tree.text(found[0])} - {count} * {mean_text} * {mean_text})"
            edits.append(replace(found[0], above))
    return edits


# -- orders of summation ----------


def _kahan_drop(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("assignment_expression"):
        value = field(node, "right")
        outer = binary(tree, value, "-")
        inner = binary(tree, outer[0], "-") if outer and operator(tree, node) == "=" else None
        if inner and tree.is_float(value) and _compensates(tree, node):
            yield mutation(replace(value, "0.0f"))


def _compensates(tree: KernelTree, node: Node) -> bool:
    """Whether the assigned variable is subtracted from, or added to, a later summand."""
    name = root_identifier(tree, field(node, "left"))
    return any(
        root_identifier(tree, side) == name
        for other in tree.nodes("binary_expression", within=tree.function(node))
        for side in (binary(tree, other, "-", "+") or ())[1:]
    )


def _pairwise_to_serial(tree: KernelTree) -> Iterator[Mutation]:
    """The first tree sum of a source as a running sum: further ones err no differently."""
    yield from islice(_serial_sums(tree), 1)


def _serial_sums(tree: KernelTree) -> Iterator[Mutation]:
    """Each tree sum of shared memory or of shuffles as a running sum of thread or lane 0."""
    for loop in tree.nodes("for_statement"):
        header = halving(tree, loop)
        if header is None or not adds(tree, loop):
            continue
        name, start = header
        body = field(loop, "body")
        shuffles = list(calls(tree, *SHUFFLES, within=body))
        initial, condition, update = (
            field(loop, f) for f in ("initializer", "condition", "update")
        )
        once = (
            replace(field(field(initial, "declarator"), "value"), "1"),
            replace(condition, f"{name} < 2 * {atom(tree, start)}"),
            replace(update, f"++{name}"),
        )
        if shuffles:
            yield from _serial_shuffle(tree, loop, shuffles, once)
            continue
        for test in tree.nodes("if_statement", within=body):
            sides = binary(tree, field(test, "condition"), "<")
            if sides and tree.text(sides[1]) == name:
                whole = strip(field(test, "condition"))
                yield mutation(*once, replace(whole, f"{tree.text(sides[0])} == 0"))
                break


def halving(tree: KernelTree, loop: Node) -> tuple[str, Node] | None:
    """``(s, start)`` of ``for (int s = start; s > 0; s >>= 1)``."""
    initial, update = loop.child_by_field_name("initializer"), loop.child_by_field_name("update")
    if initial is None or update is None or loop.child_by_field_name("condition") is None:
        return None
    declarator = initial.child_by_field_name("declarator")
    if declarator is None or declarator.type != "init_declarator":
        return None
    halves = operator(tree, update), tree.text(update.named_children[-1])
    if halves not in ((">>=", "1"), ("/=", "2")):
        return None
    return declared_name(tree, declarator), field(declarator, "value")


def adds(tree: KernelTree, loop: Node) -> bool:
    """Whether a loop sums into a float."""
    function = tree.function(loop)
    return any(
        loop.start_byte <= u.node.start_byte < loop.end_byte for u in updates(tree, function)
    )


def _serial_shuffle(
    tree: KernelTree, loop: Node, shuffles: list[Node], once: tuple[Edit, ...]
) -> Iterator[Mutation]:
    values = {tree.text(arguments(s)[1]) for s in shuffles}
    if len(values) != 1:
        return
    edits = [replace(arguments(s)[1], "own") for s in shuffles]
    before = loop.prev_named_sibling  # a #pragma unroll belongs to the loop
    start = before.start_byte if before and before.type == "preproc_call" else loop.start_byte
    yield mutation(
        Edit(start, start, f"{{ const float own = {values.pop()}; "),
        *once,
        *edits,
        Edit(loop.end_byte, loop.end_byte, " }"),
    )


# -- the rules ----------

_PARAMS = "const float* x, float* y, int rows, int cols"


def _softmax(shifted: str, value: str) -> str:
    return kernel(
        "    float m = x[0], sum = 0.0f;\n"
        "    for (int j = 0; j < cols; ++j) m = fmaxf(m, x[j]);\n"
        f"    for (int j = 0; j < cols; ++j) sum += expf({shifted});\n"
        f"    y[threadIdx.x] = {value};",
        _PARAMS,
    )


def _variance(deviation: str, variance: str) -> str:
    return kernel(
        "    float sum = 0.0f, squares = 0.0f;\n"
        "    for (int j = 0; j < cols; ++j) sum += x[j];\n"
        "    const float mean = sum / cols;\n"
        "    for (int j = 0; j < cols; ++j) {\n"
        "        const float d = x[j] - mean;\n"
        f"        squares += {deviation};\n    }}\n"
        f"    y[0] = {variance};",
        _PARAMS,
    )


def _kahan(rest: str) -> str:
    return kernel(
        "    float sum = 0.0f, c = 0.0f;\n"
        "    for (int j = 0; j < cols; ++j) {\n"
        "        const float v = x[j] - c;\n        const float t = sum + v;\n"
        f"        c = {rest};\n        sum = t;\n    }}\n    y[0] = sum;",
        _PARAMS,
    )


def _tree(header: str, test: str) -> str:
    return kernel(
        "    __shared__ float p[32];\n    int tid = threadIdx.x;\n    p[tid] = x[tid];\n"
        f"    __syncthreads();\n    for ({header}) {{\n"
        f"        if ({test}) p[tid] += p[tid + s];\n        __syncthreads();\n    }}\n"
        "    if (tid == 0) y[0] = p[0];"
    )


_SHUFFLE = "    float v = x[threadIdx.x];\n    {}\n    if (threadIdx.x == 0) y[0] = v;"

_MOMENTS = """struct Moments {{ float count; float mean; float m2; }};
__device__ Moments add(Moments m, float v) {{
    m.count += 1.0f;
    const float delta = v - m.mean;
    m.mean += delta / m.count;
    m.m2 += {square};
    return m;
}}"""


def _moments(square: str, variance: str) -> str:
    return kernel(
        "    Moments m = {0.0f, 0.0f, 0.0f};\n"
        "    for (int j = 0; j < n; ++j) m = add(m, x[j]);\n"
        f"    y[0] = {variance};",
        before=_MOMENTS.format(square=square),
    )


DROP_STABILISER = Rule(
    "drop-stabiliser",
    "precision",
    "softmax and log-sum-exp without subtracting the maximum",
    "exponentials that overflow for inputs past 88",
    _drop_stabiliser,
    (
        Example(
            _softmax("x[j] - m", "expf(x[threadIdx.x] - m) / sum"),
            (_softmax("x[j]", "expf(x[threadIdx.x]) / sum"),),
        ),
        Example(_softmax("x[j] - m", "m + logf(sum)"), (_softmax("x[j]", "logf(sum)"),)),
    ),
)
TWO_MOMENT_VARIANCE = Rule(
    "two-moment-variance",
    "precision",
    "two-pass or Welford variance to E[x^2] - E[x]^2",
    "cancellation where the mean is large against the spread",
    _two_moment_variance,
    (
        Example(
            _variance("d * d", "squares / cols"),
            (_variance("x[j] * x[j]", "(squares / cols - mean * mean)"),),
        ),
        Example(
            _variance("d * d", "squares / (cols - 1)"),
            (_variance("x[j] * x[j]", "(squares - cols * mean * mean) / (cols - 1)"),),
        ),
        Example(
            _moments("delta * (v - m.mean)", "m.m2 / m.count"),
            (_moments("v * v", "(m.m2 / m.count - m.mean * m.mean)"),),
        ),
    ),
)
KAHAN_DROP = Rule(
    "kahan-drop",
    "precision",
    "the compensation of a Kahan sum becomes 0",
    "a compensated sum optimised to a plain one",
    _kahan_drop,
    (Example(_kahan("(t - sum) - v"), (_kahan("0.0f"),)),),
)
PAIRWISE_TO_SERIAL = Rule(
    "pairwise-to-serial",
    "precision",
    "a tree sum over threads or lanes becomes a running sum",
    "rounding errors that grow with n in place of log n",
    _pairwise_to_serial,
    (
        Example(
            _tree("int s = blockDim.x / 2; s > 0; s >>= 1", "tid < s"),
            (_tree("int s = 1; s < 2 * (blockDim.x / 2); ++s", "tid == 0"),),
        ),
        Example(
            kernel(
                _SHUFFLE.format(
                    "for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(~0u, v, o);"
                )
            ),
            (
                kernel(
                    _SHUFFLE.format(
                        "{ const float own = v; for (int o = 1; o < 2 * 16; ++o) "
                        "v += __shfl_down_sync(~0u, own, o); }"
                    )
                ),
            ),
        ),
    ),
)
