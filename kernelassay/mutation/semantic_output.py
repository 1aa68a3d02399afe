"""Semantic faults of parameters and outputs: what generated kernels get wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.examples import indexed
from kernelassay.mutation.fused_terms import BIAS, in_sum, is_output_index, is_summed, role
from kernelassay.mutation.match import (
    LOOPS,
    Store,
    atom,
    binary,
    call,
    declared_name,
    definition,
    inputs,
    loads,
    number,
    pointer_root,
    put,
    squash,
    stores,
    strip,
    subscript,
    term,
)
from kernelassay.mutation.nodes import field, operator
from kernelassay.mutation.rule import Mutation, Rule
from kernelassay.mutation.tree import KernelTree, Parameter, mutation, replace

# -- parameters ----------


def _operands(tree: KernelTree, kernel_: Node) -> tuple[str, ...]:
    """The pointers-to-const of a kernel that its launch gets from outside, no scratch."""
    given = inputs(tree, tree.launcher)
    parameters = tree.parameters(kernel_)
    found: list[str] = []
    for site in tree.launches():
        if site.kernel == tree.name(kernel_):
            pairs = zip(parameters, site.arguments, strict=False)
            found += [p.name for p, value in pairs if tree.text(value) in given[1:]]
    return tuple(dict.fromkeys(name for name in found if name in inputs(tree, kernel_)))


def _ignore_parameter(tree: KernelTree) -> Iterator[Mutation]:
    for function in tree.kernels:
        for name in _operands(tree, function):
            found = [n for n in loads(tree, within=function) if pointer_root(tree, n) == name]
            if not found or any(is_output_index(tree, n) for n in found):
                continue  # an operand as large as the output is data, no parameter
            if len(found) == 1 and _is_dropped_elsewhere(tree, found[0]):
                continue
            yield mutation(*(replace(n, _default(tree, n, name)) for n in found))


def _default(tree: KernelTree, node: Node, name: str) -> str:
    """1 for a factor, 0 for a summand, by what the read is used for."""
    user = _first_use(tree, node)
    if BIAS.search(name) or re.search(r"mean|resid", name):
        return "0.0f"
    parent = tree.parent(user)
    while parent is not None and parent.type in ("parenthesized_expression", "cast_expression"):
        user, parent = parent, tree.parent(parent)
    if parent is not None and parent.type == "binary_expression":
        return "0.0f" if operator(tree, parent) in ("+", "-") else "1.0f"
    if parent is not None and parent.type == "assignment_expression":
        return "0.0f" if operator(tree, parent) in ("+=", "-=") else "1.0f"
    return "1.0f"


def _first_use(tree: KernelTree, node: Node) -> Node:
    """The load itself, or the first use of the variable it initialises."""
    parent = tree.parent(node)
    while parent is not None and parent.type in ("conditional_expression", "cast_expression"):
        parent = tree.parent(parent)
    if parent is None or parent.type != "init_declarator":
        return node
    name, function = tree.text(field(parent, "declarator")), tree.function(node)
    for use in tree.nodes("identifier", within=function):
        if use.start_byte > parent.end_byte and tree.text(use) == name:
            return use
    return node


def _is_dropped_elsewhere(tree: KernelTree, node: Node) -> bool:
    """Whether drop-bias, drop-scale or drop-residual already removes this only read."""
    use, holder = _first_use(tree, node), tree.parent(node)
    is_start = holder is not None and holder.type == "init_declarator"
    if is_start and holder is not None and is_summed(tree, field(holder, "declarator")):
        return bool(BIAS.search(pointer_root(tree, node)))
    parent = tree.parent(use)
    if parent is None or parent.type != "binary_expression" or in_sum(tree, use):
        return False
    return operator(tree, parent) in ("+", "*") and role(tree, use) in ("broadcast", "aligned")


# -- broadcasting ----------


def _broadcast_wrong_dim(tree: KernelTree) -> Iterator[Mutation]:
    for node in loads(tree):
        index, pointer = subscript(tree, node), pointer_root(tree, node)
        if index is None or in_sum(tree, node) or is_output_index(tree, node):
            continue
        if pointer == inputs(tree, tree.function(node))[0] or _is_staged(tree, node):
            continue
        for text in _other_dimensions(tree, index):
            yield mutation(put(tree, index, text))


def _is_staged(tree: KernelTree, node: Node) -> bool:
    """Whether a load goes into a tile, where its index is a place in the tile."""
    assigned = tree.enclosing(node, "assignment_expression")
    if assigned is None or field(assigned, "left").type != "subscript_expression":
        return False
    return all(s.node.id != assigned.id for s in stores(tree))


def _other_dimensions(tree: KernelTree, index: Node) -> list[str]:
    """Up to two other coordinates that a broadcast operand could be indexed by."""
    value = strip(index)
    if value.type == "identifier":
        return _other_coordinates(tree, value)
    modulo = binary(tree, value, "%")
    if modulo is None:
        quotient = binary(tree, value, "/")
        return [f"{term(tree, quotient[0])} % {atom(tree, quotient[1])}"] if quotient else []
    quotient = binary(tree, modulo[0], "/")
    size = atom(tree, modulo[1])
    if quotient:  # (i / inner) % size: the last dimension in place of the middle one
        return [f"{term(tree, quotient[0])} % {size}"]
    return [f"({term(tree, modulo[0])} / {size}) % {size}"]


def _other_coordinates(tree: KernelTree, index: Node) -> list[str]:
    """Up to two other coordinates: those of the output's index, else unravelled locals."""
    function, name = tree.function(index), tree.text(index)
    stored = [subscript(tree, s.target) for s in stores(tree) if tree.function(s.node) == function]
    spelled = [
        tree.text(n)
        for place in stored
        if place is not None and place.type != "identifier"
        for n in tree.nodes("identifier", within=place)
        if _is_coordinate(tree, n)
    ]
    found = [
        other for other in dict.fromkeys(spelled) if other != name and _visible(tree, index, other)
    ]
    found = found or [n for n in _unravelled(tree, index) if n != name]
    body = squash(tree.text(function))
    if not found and "blockIdx.x" in body and "blockIdx.x*blockDim" not in body:
        return ["blockIdx.x"]  # a block per row: the row in place of the column
    return found[-2:]


def _visible(tree: KernelTree, index: Node, name: str) -> bool:
    """Whether a local or a parameter ``name`` is declared around ``index`` and before it."""
    for declarator in tree.nodes("init_declarator", within=tree.function(index)):
        if declared_name(tree, declarator) != name or declarator.end_byte > index.start_byte:
            continue
        scope = tree.enclosing(declarator, "compound_statement", *LOOPS)
        if scope is not None and scope.start_byte <= index.start_byte < scope.end_byte:
            return True
    return False


def _unravelled(tree: KernelTree, index: Node) -> list[str]:
    """The integer locals in scope that unravel an index or name a thread or a block."""
    found: list[str] = []
    for declarator in tree.nodes("init_declarator", within=tree.function(index)):
        other, value = field(declarator, "declarator"), strip(field(declarator, "value"))
        is_part = binary(tree, value, "%", "/") or value.type == "field_expression"
        if other.type != "identifier" or not is_part or not tree.is_integer(other):
            continue
        if _visible(tree, index, tree.text(other)) and _from_coordinate(tree, value):
            found.append(tree.text(other))
    return list(dict.fromkeys(found))


def _is_coordinate(tree: KernelTree, identifier: Node) -> bool:
    value = definition(tree, identifier)
    return value is not None and tree.is_integer(identifier) and _from_coordinate(tree, value)


def _from_coordinate(tree: KernelTree, value: Node) -> bool:
    """Whether a value depends on the thread's place, through other locals or not."""
    for identifier in tree.nodes("identifier", within=value):
        if tree.text(identifier) in ("threadIdx", "blockIdx"):
            return True
        inner = definition(tree, identifier)
        if inner is not None and _from_coordinate(tree, inner):
            return True
    return False


# -- outputs ----------


def _stale_output(tree: KernelTree) -> Iterator[Mutation]:
    for store in stores(tree):
        statement = tree.parent(store.node)
        if statement is None or statement.type != "expression_statement":
            continue
        test = _skipping_test(tree, store)
        yield mutation(replace(statement, f"if ({test}) {tree.text(statement)}"))


def _skipping_test(tree: KernelTree, store: Store) -> str:
    """False for one thread of each block; where one thread stores alone, for the first block."""
    condition = tree.enclosing(store.node, "if_statement")
    while condition is not None:
        test = squash(tree.text(field(condition, "condition")))
        if re.search(r"(threadIdx\.x|tid|thread|lane|warp)==0", test):
            return "blockIdx.x != 0"
        condition = tree.enclosing(condition, "if_statement")
    function = tree.text(tree.function(store.node))
    axes = [a for a in "xyz" if f"threadIdx.{a}" in function]
    return " || ".join(f"threadIdx.{a} != 0" for a in axes) or "blockIdx.x != 0"


def _constant_output(tree: KernelTree) -> Iterator[Mutation]:
    for store in stores(tree):
        zero, copy = _zero(tree, store), _copied_input(tree, store)
        if zero is not None and number(tree, store.value) != 0:
            yield mutation(replace(store.value, zero))
        if copy is not None and squash(copy) != squash(tree.text(store.value)):
            yield mutation(replace(store.value, copy))


def _zero(tree: KernelTree, store: Store) -> str | None:
    base = tree.base_type(store.target)
    vectors = {
        "float4": "make_float4(0.0f, 0.0f, 0.0f, 0.0f)",
        "float2": "make_float2(0.0f, 0.0f)",
        "bool": "false",
    }
    if base in vectors:
        return vectors[base]
    match tree.kind(store.target):
        case "float":
            return "0.0f"
        case "half":
            return "__float2half(0.0f)" if "bfloat" not in base else "__float2bfloat16(0.0f)"
        case "double":
            return "0.0"
        case "int" | "long":
            return "0"
    return None


def _copied_input(tree: KernelTree, store: Store) -> str | None:
    """The first input of the same element type, read at the place that is stored to."""
    index, function = subscript(tree, store.target), tree.function(store.node)
    if index is None:
        return None
    root = strip(field(store.target, "argument"))
    for parameter in tree.parameters(function):
        if parameter.name not in inputs(tree, function):
            continue
        if root.type == "identifier" and tree.text(root) == store.pointer:
            if _element(parameter) == tree.base_type(store.target):
                return f"{parameter.name}[{tree.text(index)}]"
        elif call(tree, root, "reinterpret_cast") and "float4" in tree.text(root):
            return f"reinterpret_cast<const float4*>({parameter.name})[{tree.text(index)}]"
    return None


def _element(parameter: Parameter) -> str:
    return " ".join(
        w
        for w in parameter.type_text.replace("*", " ").split()
        if w not in ("const", "__restrict__")
    )


# -- the rules ----------

_BIASED = "const float* x, const float* bias, float* y, int n, int c"


IGNORE_PARAMETER = Rule(
    "ignore-parameter",
    "semantic",
    "every read of a parameter becomes its default: 1 for a factor, 0 for a summand",
    "a learned parameter was taken for its initial value",
    _ignore_parameter,
    (
        indexed(
            "const float* x, const float* w, float* y, int n",
            "    float acc = 0.0f;\n    for (int k = 0; k < n; ++k) acc += x[k] * w[k];\n"
            "    y[i] = acc;",
            "    float acc = 0.0f;\n    for (int k = 0; k < n; ++k) acc += x[k] * 1.0f;\n"
            "    y[i] = acc;",
        ),
    ),
)
BROADCAST_WRONG_DIM = Rule(
    "broadcast-wrong-dim",
    "semantic",
    "a broadcast operand is indexed by another dimension",
    "a per-channel parameter applied along another axis",
    _broadcast_wrong_dim,
    (
        indexed(
            _BIASED,
            "    y[i] = x[i] + bias[(i / n) % c];",
            "    y[i] = x[i] + bias[i % c];",
        ),
        indexed(
            _BIASED,
            "    int row = i / c;\n    int channel = i % c;\n    y[i] = x[i] + bias[channel];",
            "    int row = i / c;\n    int channel = i % c;\n    y[i] = x[i] + bias[row];",
        ),
    ),
)
STALE_OUTPUT = Rule(
    "stale-output",
    "semantic",
    "one thread of each block (or the first block) does not store",
    "an element of each tile keeps what the memory held before",
    _stale_output,
    (
        indexed(
            "const float* x, float* y, int n",
            "    if (i < n) y[i] = x[i];",
            "    if (i < n) if (threadIdx.x != 0) y[i] = x[i];",
        ),
    ),
)
CONSTANT_OUTPUT = Rule(
    "constant-output",
    "semantic",
    "the stored value becomes 0, and the input itself",
    "an operation that the reference's parameters make trivial was optimised away",
    _constant_output,
    (
        indexed(
            "const float* x, float* y, int n",
            "    if (i < n) y[i] = x[i] * 3.0f;",
            "    if (i < n) y[i] = 0.0f;",
            "    if (i < n) y[i] = x[i];",
        ),
    ),
)
