"""Semantic faults of fused epilogues: terms that are dropped or applied in the wrong order."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.activations import recognise
from kernelassay.mutation.examples import indexed
from kernelassay.mutation.fused_terms import (
    BIAS,
    RESIDUAL,
    fused,
    in_sum,
    is_bias,
    is_scale,
    is_summed,
    name_of,
    role,
)
from kernelassay.mutation.match import (
    atom,
    binary,
    expand,
    fit,
    is_load,
    number,
    pointer_root,
    put,
    squash,
    strip,
    term,
)
from kernelassay.mutation.nodes import field, operator
from kernelassay.mutation.rule import Mutation, Rule
from kernelassay.mutation.semantic_normalise import is_attention_scale
from kernelassay.mutation.tree import KernelTree, mutation, replace

# -- dropped terms ----------


def _drop_bias(tree: KernelTree) -> Iterator[Mutation]:
    for node, kept, dropped in fused(tree, "+"):
        if is_bias(tree, dropped) and number(tree, kept) is None:
            yield mutation(put(tree, node, tree.text(kept)))
    for node in tree.nodes("init_declarator", "assignment_expression"):
        is_init = node.type == "init_declarator"
        value = field(node, "value" if is_init else "right")
        target = field(node, "declarator" if is_init else "left")
        if not BIAS.search(_loaded_name(tree, value)) or not tree.is_float(target):
            continue
        if not is_init and operator(tree, node) == "+=":
            yield mutation(replace(value, "0.0f"))
        elif is_summed(tree, target):
            yield mutation(replace(value, "0.0f"))  # the accumulator starts at the bias


def _loaded_name(tree: KernelTree, value: Node) -> str:
    value = strip(value)
    if value.type == "conditional_expression":
        value = strip(field(value, "consequence"))
    return pointer_root(tree, value) if is_load(tree, value) else ""


def _drop_scale(tree: KernelTree) -> Iterator[Mutation]:
    for node, kept, dropped in fused(tree, "*"):
        if number(tree, kept) is not None or is_attention_scale(tree, dropped):
            continue
        is_statement = field_is_value(tree, node) and role(tree, dropped) == "constant"
        if is_scale(tree, dropped) or is_statement:
            yield mutation(put(tree, node, tree.text(kept)))


def field_is_value(tree: KernelTree, node: Node) -> bool:
    """Whether ``node`` is the whole value of a declaration: one step of a fused kernel."""
    parent = tree.parent(node)
    return parent is not None and parent.type == "init_declarator"


def _drop_residual(tree: KernelTree) -> Iterator[Mutation]:
    for node, kept, dropped in fused(tree, "+"):
        named = bool(RESIDUAL.search(name_of(tree, dropped)))
        if (role(tree, dropped) == "aligned" or named) and number(tree, kept) is None:
            yield mutation(put(tree, node, tree.text(kept)))


# -- the order of an epilogue ----------


def _epilogue_reorder(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression", "call_expression", "conditional_expression"):
        if not tree.is_float(node) or in_sum(tree, node):
            continue
        sides = binary(tree, node, "+") if node.type == "binary_expression" else None
        if sides:
            yield from _bias_before_scale(tree, node, *sides)
            continue
        found = recognise(tree, node)
        if found is None or found.kind == "softplus":
            continue
        total = binary(tree, expand(tree, found.argument), "+")
        for one, bias in (total, total[::-1]) if total else ():
            if number(tree, one) is None and _is_summand(tree, bias):
                text = _with_argument(tree, node, found.argument, tree.text(one))
                yield mutation(put(tree, node, f"{text} + {term(tree, bias)}"))
                break


def _bias_before_scale(tree: KernelTree, node: Node, left: Node, right: Node) -> Iterator[Mutation]:
    for scaled, bias in ((left, right), (right, left)):
        factors = binary(tree, expand(tree, scaled), "*")
        if not factors or not _is_summand(tree, bias):
            continue
        value, scale = factors if not _is_factor(tree, factors[0]) else factors[::-1]
        if _is_factor(tree, scale) and not _is_factor(tree, value):
            text = f"({term(tree, value)} + {term(tree, bias)}) * {atom(tree, scale)}"
            yield mutation(replace(node, fit(tree, node, text)))
            return


def _is_summand(tree: KernelTree, node: Node) -> bool:
    return is_bias(tree, node) or role(tree, node) == "aligned"


def _is_factor(tree: KernelTree, node: Node) -> bool:
    return is_scale(tree, node) or role(tree, node) == "constant"


def _with_argument(tree: KernelTree, node: Node, argument: Node, text: str) -> str:
    """The text of ``node`` with every occurrence of ``argument`` in it replaced."""
    value, wanted = tree.text(node), squash(tree.text(argument))
    places = [
        n
        for n in tree.nodes(within=node)
        if n.is_named and n.type == argument.type and squash(tree.text(n)) == wanted
    ]
    for place in reversed(places):
        start, end = (b - node.start_byte for b in (place.start_byte, place.end_byte))
        data = value.encode()
        value = (data[:start] + fit(tree, place, text).encode() + data[end:]).decode()
    return value if node.type != "conditional_expression" else f"({value})"


# -- the rules ----------

_BIASED = "const float* x, const float* bias, float* y, int n, int c"
_SCALED = "const float* x, const float* scale, const float* bias, float* y, int n, int c"


DROP_BIAS = Rule(
    "drop-bias",
    "semantic",
    "a broadcast or scalar summand, or the bias an accumulator starts at, is removed",
    "the bias was not fused",
    _drop_bias,
    (
        indexed(_BIASED, "    y[i] = x[i] * 2.0f + bias[i % c];", "    y[i] = x[i] * 2.0f;"),
        indexed(
            _BIASED,
            "    float acc = bias[i % c];\n    for (int k = 0; k < c; ++k) acc += x[k];\n"
            "    y[i] = acc;",
            "    float acc = 0.0f;\n    for (int k = 0; k < c; ++k) acc += x[k];\n    y[i] = acc;",
        ),
    ),
)
DROP_SCALE = Rule(
    "drop-scale",
    "semantic",
    "a broadcast, scalar or constant factor of a fused step is removed",
    "the scaling was not fused",
    _drop_scale,
    (
        indexed(
            _SCALED,
            "    y[i] = x[i] * scale[i % c] + bias[i % c];",
            "    y[i] = x[i] + bias[i % c];",
        ),
        indexed(
            "const float* x, float* y, int n",
            "    const float t1 = x[i] * 2.0f;\n    y[i] = t1;",
            "    const float t1 = x[i];\n    y[i] = t1;",
        ),
    ),
)
DROP_RESIDUAL = Rule(
    "drop-residual",
    "semantic",
    "a summand read at the output's own index is removed",
    "the residual connection was not fused",
    _drop_residual,
    (
        indexed(
            "const float* x, const float* skip, float* y, int n",
            "    y[i] = x[i / 2] * 2.0f + skip[i];",
            "    y[i] = x[i / 2] * 2.0f;",
        ),
    ),
)
EPILOGUE_REORDER = Rule(
    "epilogue-reorder",
    "semantic",
    "`v * scale + bias` to `(v + bias) * scale`; `act(v + bias)` to `act(v) + bias`",
    "the steps of a fused epilogue in the wrong order",
    _epilogue_reorder,
    (
        indexed(
            _SCALED,
            "    y[i] = x[i] * scale[i % c] + bias[i % c];",
            "    y[i] = (x[i] + bias[i % c]) * scale[i % c];",
        ),
        indexed(
            _BIASED,
            "    const float t1 = x[i] + bias[i % c];\n    y[i] = fmaxf(t1, 0.0f);",
            "    const float t1 = x[i] + bias[i % c];\n    y[i] = fmaxf(x[i], 0.0f) + bias[i % c];",
        ),
    ),
)
