"""Semantic faults of normalisation layers: variance, epsilon, running averages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from tree_sitter import Node

from kernelassay.mutation.examples import ROWS, example
from kernelassay.mutation.match import (
    atom,
    binary,
    call,
    loads,
    number,
    pointer_root,
    put,
    resolve,
    same,
    strip,
    term,
    updates,
)
from kernelassay.mutation.nodes import arguments, callee, field, names_in, operator
from kernelassay.mutation.rule import Mutation, Rule
from kernelassay.mutation.semantic_divisors import count_division
from kernelassay.mutation.semantic_normalise import RSQRT, SQRT, both_ways
from kernelassay.mutation.tree import KernelTree, mutation, replace

_SQUARES = re.compile(r"var|m2|sq|dev|ss$", re.IGNORECASE)
_EPS = re.compile(r"eps", re.IGNORECASE)


# -- variance ----------


def squared_sums(tree: KernelTree, function: Node) -> set[str]:
    """The variables of ``function`` that sum squared deviations, or are named as if they did."""
    found = set()
    for update in updates(tree, function):
        sides = update.fused or binary(tree, resolve(tree, update.term), "*")
        deviates = sides and any("-" in tree.text(resolve(tree, s)) for s in sides)
        if (deviates and sides and same(tree, *sides)) or _SQUARES.search(update.name):
            found.add(update.name)
    return found


def _variance_divisions(tree: KernelTree) -> Iterator[Node]:
    """The count by which a sum of squared deviations is divided."""
    for node in tree.nodes("binary_expression"):
        found = count_division(tree, node)
        if found is None or operator(tree, node) != "/":
            continue
        summed = names_in(tree, found[0]) & squared_sums(tree, tree.function(node))
        if summed or tree.text(found[0]).endswith((".m2", ".M2")):
            yield found[1]


def _integer_part(tree: KernelTree, count: Node) -> Node:
    """The integer inside the cast of a count, parentheses kept."""
    inner = strip(count)
    if inner.type == "cast_expression":
        return field(inner, "value")
    if inner.type == "call_expression":
        return arguments(inner)[0]
    return count


def _biased_variance(tree: KernelTree) -> Iterator[Mutation]:
    for count in _variance_divisions(tree):
        inner = _integer_part(tree, count)
        sides = binary(tree, inner, "-")
        if sides and number(tree, sides[1]) != 0:
            yield mutation(replace(inner, atom(tree, sides[0])))


def _unbiased_variance(tree: KernelTree) -> Iterator[Mutation]:
    for count in _variance_divisions(tree):
        inner = _integer_part(tree, count)
        sides = binary(tree, inner, "-")
        if sides is None:
            yield mutation(replace(inner, f"({tree.text(strip(inner))} - 1)"))
        elif number(tree, sides[1]) == 0:
            yield mutation(replace(sides[1], "1"))


def is_epsilon(tree: KernelTree, node: Node) -> bool:
    """Whether a summand is a stabilising constant: by name, or a literal below 1e-2."""
    value = number(tree, resolve(tree, node))
    if value is not None and 0 < value <= 1e-2:
        return True
    node = strip(node)
    return node.type == "identifier" and bool(_EPS.search(tree.text(node)))


def _eps_inside_outside(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("call_expression", "binary_expression"):
        name = callee(tree, node)
        if name in (*SQRT, *RSQRT):
            for value, eps in both_ways(binary(tree, arguments(node)[0], "+")):
                if is_epsilon(tree, eps):
                    root = SQRT[0] if tree.kind(node) == "float" else SQRT[1]
                    text = f"{root}({tree.text(value)}) + {term(tree, eps)}"
                    one = "1.0f" if tree.kind(node) == "float" else "1.0"
                    yield mutation(put(tree, node, text if name in SQRT else f"{one} / ({text})"))
                    break
        elif node.type == "binary_expression":
            for root_node, eps in both_ways(binary(tree, node, "+")):
                given = call(tree, root_node, *SQRT)
                if given and is_epsilon(tree, eps):
                    outer = callee(tree, strip(root_node))
                    inside = f"{outer}({tree.text(given[0])} + {term(tree, eps)})"
                    yield mutation(put(tree, node, inside))


# -- running statistics ----------


def _momentum_statistics(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression"):
        sides = binary(tree, node, "+")
        if not sides or not tree.is_float(node):
            continue
        found = _weights(tree, *sides)
        if found:
            one, other = found
            yield mutation(
                replace(one, atom(tree, other)), replace(other, f"({tree.text(strip(one))})")
            )
    yield from _running_for_batch(tree)


def _weights(tree: KernelTree, left: Node, right: Node) -> tuple[Node, Node] | None:
    """``(1 - m, m)`` of a running average ``(1 - m) * old + m * new``, in any order."""
    for one, other in ((left, right), (right, left)):
        for complement in binary(tree, one, "*") or ():
            parts = binary(tree, complement, "-")
            if not parts or number(tree, parts[0]) != 1:
                continue
            for weight in binary(tree, other, "*") or ():
                if same(tree, weight, parts[1]):
                    return complement, weight
    return None


def _running_for_batch(tree: KernelTree) -> Iterator[Mutation]:
    """The batch's mean or variance replaced by the running one where both are at hand."""
    for function in tree.kernels:
        known: dict[str, str] = {}
        for node in loads(tree, within=function):
            name = pointer_root(tree, node)
            if "running" in name:
                known.setdefault("mean" if "mean" in name else "var", tree.text(node))
        for node in tree.nodes("binary_expression", within=function):
            sides = binary(tree, node, "-", "+")
            if not sides:
                continue
            wanted = "mean" if operator(tree, node) == "-" else "var"
            statistic = sides[1] if wanted == "mean" else sides[0]
            fits = wanted == "mean" or is_epsilon(tree, sides[1])
            is_name = strip(statistic).type == "identifier"
            if fits and is_name and wanted in known and wanted in tree.text(statistic):
                yield mutation(replace(statistic, known[wanted]))


# -- the rules ----------

_example = partial(example, params=ROWS)


def _variance(count: str, value: str = "sqrtf(var + 1e-5f)") -> str:
    return (
        "    float m2 = 0.0f;\n"
        "    for (int j = 0; j < cols; ++j) m2 += x[j] * x[j];\n"
        f"    const float var = m2 / {count};\n"
        f"    y[threadIdx.x] = {value};"
    )


BIASED_VARIANCE = Rule(
    "biased-variance",
    "semantic",
    "a variance is divided by n in place of n - 1",
    "the biased estimator where the reference asks for the unbiased",
    _biased_variance,
    (_example(_variance("(cols - 1)"), _variance("cols")),),
)
UNBIASED_VARIANCE = Rule(
    "unbiased-variance",
    "semantic",
    "a variance is divided by n - 1 in place of n",
    "the unbiased estimator where the reference asks for the biased",
    _unbiased_variance,
    (_example(_variance("(float)cols"), _variance("(float)(cols - 1)")),),
)
EPS_INSIDE_OUTSIDE = Rule(
    "eps-inside-outside",
    "semantic",
    "`sqrtf(v + eps)` to `sqrtf(v) + eps` and back; the same for rsqrtf",
    "the stabiliser on the wrong side of the square root",
    _eps_inside_outside,
    (
        _example(_variance("cols"), _variance("cols", "sqrtf(var) + 1e-5f")),
        _example(
            _variance("cols", "x[0] * rsqrtf(var + 1e-5f)"),
            _variance("cols", "x[0] * (1.0f / (sqrtf(var) + 1e-5f))"),
        ),
    ),
)
MOMENTUM_STATISTICS = Rule(
    "momentum-statistics",
    "semantic",
    "the two weights of a running average exchanged; batch statistics replaced by running ones",
    "momentum of old and new mixed up; evaluation mode where training mode is asked for",
    _momentum_statistics,
    (
        _example(
            "    y[0] = (1.0f - m) * x[0] + m * x[1];",
            "    y[0] = m * x[0] + (1.0f - m) * x[1];",
            params="const float* x, float* y, float m",
        ),
        _example(
            "    const float mean = x[0];\n    y[0] = x[1] - mean;\n    y[1] = running_mean[0];",
            "    const float mean = x[0];\n    y[0] = x[1] - running_mean[0];\n"
            "    y[1] = running_mean[0];",
            params="const float* x, const float* running_mean, float* y",
        ),
    ),
)
