"""Semantic faults of reductions and scans: start values, ties, divisors, norms, order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from tree_sitter import Node

from kernelassay.mutation.activations import MAX, MIN
from kernelassay.mutation.examples import ROWS, example
from kernelassay.mutation.match import (
    LOOPS,
    atom,
    binary,
    declared_name,
    definition,
    number,
    pure,
    put,
    resolve,
    same,
    stores,
    strip,
    updates,
)
from kernelassay.mutation.nodes import arguments, callee, calls, field, names_in, operator
from kernelassay.mutation.rule import Edit, Mutation, Rule
from kernelassay.mutation.tree import KernelTree, mutation, replace

_INFINITE = frozenset({"INFINITY", "FLT_MAX", "HUGE_VALF", "CUDART_INF_F"})
_COUNT = re.compile(r"count(s)?(\[.*\])?$")
_INCLUDES = re.compile(r"include|count_pad")
_UNSIGNED = re.compile(r"unsigned|uint|size_t")
_FLIPPED = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


# -- extrema ----------


def _max_min_swap(tree: KernelTree) -> Iterator[Mutation]:
    names = dict(zip((*MAX, *MIN), (*MIN, *MAX), strict=True))
    names |= {"atomicMax": "atomicMin", "atomicMin": "atomicMax"}
    names |= {"__hmax": "__hmin", "__hmin": "__hmax"}
    for node in calls(tree, *names):
        yield mutation(replace(field(node, "function"), names[callee(tree, node)]))


def _selections(tree: KernelTree) -> Iterator[Node]:
    """Conditions under which a value *and* its index are taken over."""
    for node in tree.nodes("if_statement", "conditional_expression"):
        condition = strip(field(node, "condition"))
        if node.type == "if_statement":
            changed = [
                field(n, "left")
                for n in tree.nodes("assignment_expression", within=field(node, "consequence"))
            ]
            takes_index = any(tree.is_integer(t) for t in changed)
            takes_value = any(tree.is_float(t) for t in changed)
            compares = any(tree.is_float(side) for side in _compared(tree, condition))
            if takes_index and takes_value and compares:
                yield condition
        elif tree.is_integer(node) and any(tree.is_float(s) for s in _compared(tree, condition)):
            yield condition


def _compared(tree: KernelTree, condition: Node) -> list[Node]:
    return [
        side
        for node in tree.nodes("binary_expression", within=condition)
        for side in binary(tree, node, *_FLIPPED) or ()
    ]


def _tie_break(tree: KernelTree) -> Iterator[Mutation]:
    for condition in _selections(tree):
        for node in tree.nodes("binary_expression", within=condition):
            sides = binary(tree, node, *_FLIPPED)
            if sides:
                table = _FLIPPED if tree.is_float(sides[0]) else _MIRRORED
                yield mutation(replace(field(node, "operator"), table[operator(tree, node)]))
        loop = tree.enclosing(condition, *LOOPS)
        reversed_ = reversed_loop(tree, loop) if loop is not None else None
        if reversed_:
            yield mutation(*reversed_)


def reversed_loop(tree: KernelTree, loop: Node) -> tuple[Edit, ...] | None:
    """The edits that run ``for (T i = a; i < b; ++i)`` from the other end."""
    if loop.type != "for_statement":
        return None
    initial, condition, update = (
        loop.child_by_field_name(f) for f in ("initializer", "condition", "update")
    )
    if initial is None or condition is None or update is None:
        return None
    declarator = initial.child_by_field_name("declarator")
    sides = binary(tree, condition, "<")
    if declarator is None or declarator.type != "init_declarator" or not sides:
        return None
    name, start = declared_name(tree, declarator), field(declarator, "value")
    if tree.text(sides[0]) != name or update.type != "update_expression":
        return None
    if operator(tree, update) != "++" or _UNSIGNED.search(tree.text(field(initial, "type"))):
        return None
    return (
        replace(start, f"{atom(tree, sides[1])} - 1"),
        replace(condition, f"{name} >= {atom(tree, start)}"),
        replace(update, f"--{name}"),
    )


# -- start values ----------


def _init_identity(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("init_declarator", "assignment_expression", "conditional_expression"):
        for value in _starts(tree, node):
            for text in _other_starts(tree, value):
                yield mutation(put(tree, value, text))


def _starts(tree: KernelTree, node: Node) -> list[Node]:
    """Expressions of ``node`` that are a start or fallback value of a float reduction."""
    if node.type == "init_declarator":
        value = field(node, "value")
        items = value.named_children if value.type == "initializer_list" else [value]
        name, function = declared_name(tree, node), tree.function(node)
        summed = any(u.name == name for u in updates(tree, function))
        multiplied = _is_multiplied(tree, function, name)
        return [i for i in items if _is_infinite(tree, i)] or (
            items[:1] if (summed or multiplied) and tree.is_float(items[0]) else []
        )
    if node.type == "assignment_expression":
        value = field(node, "right")
        return [value] if operator(tree, node) == "=" and _is_infinite(tree, value) else []
    branches = (field(node, "consequence"), field(node, "alternative"))
    return [b for b in branches if _is_infinite(tree, b)]


def _is_multiplied(tree: KernelTree, function: Node, name: str) -> bool:
    for node in tree.nodes("assignment_expression", within=function):
        if tree.text(field(node, "left")) != name:
            continue
        factors = binary(tree, field(node, "right"), "*") or ()
        if operator(tree, node) == "*=" or any(tree.text(f) == name for f in factors):
            return True
    return False


def _is_infinite(tree: KernelTree, node: Node) -> bool:
    names = names_in(tree, node)
    value = number(tree, node)
    return bool(names and names <= _INFINITE) or (value is not None and abs(value) > 1e30)


def _other_starts(tree: KernelTree, value: Node) -> tuple[str, ...]:
    if _is_infinite(tree, value):
        is_low = tree.text(strip(value)).startswith("-")
        return ("0.0f", "1.17549435e-38f") if is_low else ("0.0f",)
    return (
        {0.0: ("1.0f",), 1.0: ("0.0f",)}.get(number(tree, value) or 0.0, ())
        if (number(tree, value) is not None)
        else ()
    )


# -- divisors ----------


def count_division(tree: KernelTree, node: Node) -> tuple[Node, Node] | None:
    """``(total, count)`` of a division by a number of elements, or a product with its inverse."""
    sides = binary(tree, node, "/", "*")
    if not sides or not tree.is_float(node) or number(tree, sides[0]) is not None:
        return None
    if operator(tree, node) == "/":
        return sides if is_count(tree, sides[1]) else None
    inverse = binary(tree, resolve(tree, sides[1]), "/")
    if inverse and number(tree, inverse[0]) == 1 and is_count(tree, inverse[1]):
        return sides
    return None


def is_count(tree: KernelTree, node: Node) -> bool:
    """Whether an expression is a number of elements: an integer, cast or not, or so called."""
    node = resolve(tree, node)
    if number(tree, node) is not None:
        return False
    if _COUNT.search(tree.text(node)) and node.type != "binary_expression":
        return True
    sides = binary(tree, node, "-")  # n - 1.0f
    if sides and number(tree, sides[1]) is not None:
        return is_count(tree, sides[0])
    if node.type == "cast_expression":
        return tree.is_integer(field(node, "value"))
    if callee(tree, node) in ("static_cast", "float", "__int2float_rn"):
        return tree.is_integer(arguments(node)[0])
    return tree.is_integer(node)


def _mean_vs_sum(tree: KernelTree) -> Iterator[Mutation]:
    dividing = False
    for node in tree.nodes("binary_expression"):
        found = count_division(tree, node)
        if found:
            dividing = True
            yield mutation(put(tree, node, tree.text(found[0])))
    for store in stores(tree):
        value = strip(store.value)
        if dividing or value.type != "identifier":
            continue
        bound = _summing_bound(tree, store.node, tree.text(value))
        if bound is not None:
            yield mutation(replace(store.value, f"{tree.text(value)} / (float)({bound})"))


def _summing_bound(tree: KernelTree, store: Node, name: str) -> str | None:
    """The size that bounds the loop, before ``store``, that sums plain elements into ``name``."""
    function = tree.function(store)
    sizes = set(tree.size_parameters(function))
    for update in updates(tree, function):
        loop = tree.enclosing(update.node, "for_statement")
        if update.name != name or loop is None or update.fused:
            continue
        if loop.start_byte <= store.start_byte < loop.end_byte:
            continue  # a prefix sum
        if binary(tree, resolve(tree, update.term), "*"):
            continue  # a dot product has no mean
        condition = loop.child_by_field_name("condition")
        sides = binary(tree, condition, "<") if condition is not None else None
        if sides and tree.text(sides[1]) in sizes:
            return tree.text(sides[1])
    return None


def _count_include_pad(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("conditional_expression"):
        if _INCLUDES.search(tree.text(field(node, "condition"))):
            one, two = (tree.text(field(node, f)) for f in ("consequence", "alternative"))
            yield mutation(put(tree, node, one))
            yield mutation(put(tree, node, two))
    for node in tree.nodes("if_statement"):
        condition = field(node, "condition")
        if _INCLUDES.search(tree.text(condition)):
            yield mutation(replace(condition, "(true)"))
            yield mutation(replace(condition, "(false)"))
    for node in tree.nodes("binary_expression"):
        found = count_division(tree, node)
        if found is None or operator(tree, node) != "/":
            continue
        window = _window(tree, tree.function(node))
        divisor = found[1]
        if window and _is_counted(tree, divisor):
            yield mutation(replace(divisor, f"(float)({window})"))


def _window(tree: KernelTree, function: Node) -> str:
    """The product of the kernel-size parameters of a pooling kernel."""
    sizes = tree.size_parameters(function)
    return " * ".join(s for s in sizes if re.fullmatch(r"k|k[dhwtxy]|(kernel|window)\w*", s))


def _is_counted(tree: KernelTree, divisor: Node) -> bool:
    """Whether a divisor is a count of valid elements: a local counter or clipped extents."""
    name = re.sub(r"\(float\)|[()\s]|static_cast<float>", "", tree.text(divisor))
    function = tree.function(divisor)
    for node in tree.nodes("update_expression", "assignment_expression", within=function):
        side = "argument" if node.type == "update_expression" else "left"
        loop = tree.enclosing(node, *LOOPS)
        if tree.text(field(node, side)) == name and loop is not None:
            header = field(loop, "update") if loop.type == "for_statement" else None
            return header is None or header.id != node.id
    value = resolve(tree, divisor)
    return "-" in tree.text(value)


# -- norms ----------


def _norm_power(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression", "call_expression"):
        if not tree.is_float(node):
            continue
        name = callee(tree, node)
        if name in ("fabsf", "fabs") and _is_summed(tree, node):
            value = atom(tree, arguments(node)[0])
            if pure(tree, node):
                yield mutation(put(tree, node, f"{value} * {value}"))
        elif name in ("sqrtf", "sqrt", "__fsqrt_rn"):
            if is_count(tree, arguments(node)[0]):
                continue  # the scale of attention scores, no norm
            yield mutation(put(tree, node, tree.text(arguments(node)[0])))
        elif not name:
            sides = binary(tree, node, "*")
            if sides and same(tree, *sides) and _is_summed(tree, node):
                yield mutation(put(tree, node, f"fabsf({tree.text(sides[0])})"))


def _is_summed(tree: KernelTree, node: Node) -> bool:
    """Whether ``node`` is exactly what a loop adds up."""
    for update in updates(tree, tree.function(node)):
        if strip(update.term).id == node.id and tree.enclosing(node, *LOOPS):
            return True
        if definition(tree, update.term) == node and tree.enclosing(update.node, *LOOPS):
            return True
    return False


_SUM = (
    "    float acc = 0.0f;\n"
    "    for (int j = 0; j < cols; ++j) {{\n        acc += {term};\n    }}\n"
    "    y[threadIdx.x] = {value};"
)
_example = partial(example, params=ROWS)


def _sum(term: str = "x[j]", value: str = "acc") -> str:
    return _SUM.format(term=term, value=value)


def _best(loop: str, test: str) -> str:
    return (
        "    float best = x[0];\n    int at = 0;\n"
        f"    for ({loop}) {{\n        if ({test}) {{ best = x[j]; at = j; }}\n    }}\n"
        "    y[threadIdx.x] = at;"
    )


def _maximum(start: str) -> str:
    return (
        f"    float best = {start};\n"
        "    for (int j = 0; j < cols; ++j) best = fmaxf(best, x[j]);\n    y[0] = best;"
    )


_POOL = "const float* x, float* y, int n, int kernel_w, int pad"


def _pool(divisor: str) -> str:
    return (
        "    float acc = 0.0f;\n    int count = 0;\n"
        "    for (int k = 0; k < kernel_w; ++k) {\n"
        "        if (k < pad) continue;\n        acc += x[k];\n        ++count;\n    }\n"
        f"    y[threadIdx.x] = acc / {divisor};"
    )


_UP, _DOWN = "int j = 0; j < cols; ++j", "int j = cols - 1; j >= 0; --j"

MAX_MIN_SWAP = Rule(
    "max-min-swap",
    "semantic",
    "`fmaxf` and `fminf`, `max` and `min` exchanged",
    "the wrong extremum",
    _max_min_swap,
    (_example("    y[0] = fmaxf(x[0], x[1]);", "    y[0] = fminf(x[0], x[1]);"),),
)
TIE_BREAK = Rule(
    "tie-break",
    "semantic",
    "an arg-reduction's `>` to `>=`, its tie test mirrored, its scan run from the other end",
    "the last of equal elements is reported instead of the first",
    _tie_break,
    (
        _example(
            _best(_UP, "x[j] > best"),
            _best(_UP, "x[j] >= best"),
            _best(_DOWN, "x[j] > best"),
        ),
    ),
)
INIT_IDENTITY = Rule(
    "init-identity",
    "semantic",
    "a start value: -inf to 0 and to FLT_MIN, +inf to 0, 0 to 1, 1 to 0",
    "the start value is not the operation's identity (a maximum of negatives starts at 0)",
    _init_identity,
    (
        _example(_maximum("-INFINITY"), _maximum("0.0f"), _maximum("1.17549435e-38f")),
        _example(_sum(), _sum().replace("acc = 0.0f", "acc = 1.0f")),
    ),
)
MEAN_VS_SUM = Rule(
    "mean-vs-sum",
    "semantic",
    "a division by a count removed; a plain sum divided by its length",
    "reduction='sum' and reduction='mean' mixed up",
    _mean_vs_sum,
    (
        _example(_sum(value="acc / (float)cols"), _sum()),
        _example(_sum(), _sum(value="acc / (float)(cols)")),
    ),
)
COUNT_INCLUDE_PAD = Rule(
    "count-include-pad",
    "semantic",
    "average pooling's divisor: the count of valid elements and the full window exchanged",
    "count_include_pad read the wrong way round",
    _count_include_pad,
    (
        _example(_pool("count"), _pool("(float)(kernel_w)"), params=_POOL),
        _example(
            "    y[0] = x[0] / (include_pad ? 9 : n);",
            "    y[0] = x[0] / (9);",
            "    y[0] = x[0] / (n);",
            params="const float* x, float* y, int n, int include_pad",
        ),
    ),
)
NORM_POWER = Rule(
    "norm-power",
    "semantic",
    "summed absolute values to squares and back; a square root dropped",
    "the L1, L2 and squared L2 norms mixed up",
    _norm_power,
    (
        _example(
            _sum(term="x[j] * x[j]", value="sqrtf(acc)"),
            _sum(term="fabsf(x[j])", value="sqrtf(acc)"),
            _sum(term="x[j] * x[j]", value="acc"),
        ),
        _example(_sum(term="fabsf(x[j])"), _sum(term="x[j] * x[j]")),
    ),
)
