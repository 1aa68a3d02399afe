"""Semantic faults of fused terms, parameters and outputs: what generated kernels get wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelassay.mutation.activations import recognise
from kernelassay.mutation.examples import kernel
from kernelassay.mutation.match import (
    LOOPS,
    Store,
    arguments,
    atom,
    binary,
    call,
    calls,
    declared_name,
    definition,
    field,
    fit,
    inputs,
    is_load,
    loads,
    number,
    operator,
    pointer_root,
    put,
    resolve,
    same,
    squash,
    stores,
    strip,
    subscript,
    term,
    updates,
)
from kernelassay.mutation.rule import Example, Mutation, Rule
from kernelassay.mutation.semantic_normalise import is_attention_scale
from kernelassay.mutation.tree import KernelTree, Parameter, mutation, replace

_BIAS = re.compile(r"bias|beta|shift")
_SCALE = re.compile(r"scale|gamma|weight|alpha|multiplier|factor|gain|slope")
_RESIDUAL = re.compile(r"resid|skip|shortcut|identity")
_EPS = re.compile(r"eps", re.IGNORECASE)


# -- what a term is ----------


def role(tree: KernelTree, node: Node) -> str:
    """What a summand or factor is read from.

    ``broadcast`` (a load whose index is not the output's), ``aligned`` (a load at the output's
    own index), ``scalar`` (a float parameter of a kernel), ``constant`` (a literal), else empty.
    A parameter of a ``__device__`` function has the role of what its first call passes.
    """
    source = strip(node)
    value = definition(tree, source)
    spelled = strip(value) if value is not None else source
    if number(tree, spelled) is not None:
        return "constant"
    if spelled.type == "identifier":
        return _parameter_role(tree, spelled)
    if spelled.type == "conditional_expression":
        spelled = strip(field(spelled, "consequence"))
    if spelled.type == "field_expression":  # a lane of a vector load
        lanes = resolve(tree, field(spelled, "argument"))
        is_vector = tree.base_type(lanes) == "float4" and bool(pointer_root(tree, lanes))
        return "aligned" if is_vector and _is_output_index(tree, lanes) else ""
    if not is_load(tree, spelled):
        return ""
    return "aligned" if _is_output_index(tree, spelled) else "broadcast"


def _parameter_role(tree: KernelTree, identifier: Node) -> str:
    function = tree.function(identifier)
    parameters = tree.parameters(function)
    place = next((i for i, p in enumerate(parameters) if p.name == tree.text(identifier)), None)
    if place is None or parameters[place].kind not in ("float", "double"):
        return ""
    if function in tree.kernels:
        return "scalar"
    for found in calls(tree, tree.name(function)):
        if tree.function(found) in tree.kernels and len(arguments(found)) > place:
            return role(tree, arguments(found)[place])
    return ""


def _is_output_index(tree: KernelTree, load: Node) -> bool:
    function, index = tree.function(load), subscript(tree, load)
    if index is None:
        return False
    own = [
        subscript(tree, s.target) for s in stores(tree) if tree.function(s.node).id == function.id
    ]
    return any(other is not None and same(tree, index, other) for other in own)


def _name_of(tree: KernelTree, node: Node) -> str:
    """The pointer or variable a term is named after."""
    node = strip(node)
    if node.type == "subscript_expression":
        return pointer_root(tree, node)
    return tree.text(node) if node.type == "identifier" else ""


def _is_bias(tree: KernelTree, node: Node) -> bool:
    name, kind = _name_of(tree, node), role(tree, node)
    if _EPS.search(name):
        return False
    return kind in ("broadcast", "scalar") or bool(_BIAS.search(name) and kind != "constant")


def _is_scale(tree: KernelTree, node: Node) -> bool:
    return role(tree, node) in ("broadcast", "scalar") or bool(_SCALE.search(_name_of(tree, node)))


def _in_sum(tree: KernelTree, node: Node) -> bool:
    """Whether ``node`` belongs to what a loop sums up: an operand, no fused term."""
    for update in updates(tree, tree.function(node)):
        value = field(update.node, "right")
        inside = value.start_byte <= node.start_byte and node.end_byte <= value.end_byte
        if inside and tree.enclosing(update.node, *LOOPS):
            return True
    return False


def _fused(tree: KernelTree, symbol: str) -> Iterator[tuple[Node, Node, Node]]:
    """``(expression, kept, dropped)`` for both sides of float ``symbol`` outside of loop sums."""
    for node in tree.nodes("binary_expression"):
        sides = binary(tree, node, symbol)
        if not sides or not tree.is_float(node) or _in_sum(tree, node):
            continue
        left, right = sides
        yield node, left, right
        yield node, right, left


# -- dropped terms ----------


def _drop_bias(tree: KernelTree) -> Iterator[Mutation]:
    for node, kept, dropped in _fused(tree, "+"):
        if _is_bias(tree, dropped) and number(tree, kept) is None:
            yield mutation(put(tree, node, tree.text(kept)))
    for node in tree.nodes("init_declarator", "assignment_expression"):
        is_init = node.type == "init_declarator"
        value = field(node, "value" if is_init else "right")
        target = field(node, "declarator" if is_init else "left")
        if not _BIAS.search(_loaded_name(tree, value)) or not tree.is_float(target):
            continue
        if not is_init and operator(tree, node) == "+=":
            yield mutation(replace(value, "0.0f"))
        elif _is_summed(tree, target):
            yield mutation(replace(value, "0.0f"))  # the accumulator starts at the bias


def _loaded_name(tree: KernelTree, value: Node) -> str:
    value = strip(value)
    if value.type == "conditional_expression":
        value = strip(field(value, "consequence"))
    return pointer_root(tree, value) if is_load(tree, value) else ""


def _is_summed(tree: KernelTree, target: Node) -> bool:
    return any(u.name == tree.text(target) for u in updates(tree, tree.function(target)))


def _drop_scale(tree: KernelTree) -> Iterator[Mutation]:
    for node, kept, dropped in _fused(tree, "*"):
        if number(tree, kept) is not None or is_attention_scale(tree, dropped):
            continue
        is_statement = field_is_value(tree, node) and role(tree, dropped) == "constant"
        if _is_scale(tree, dropped) or is_statement:
            yield mutation(put(tree, node, tree.text(kept)))


def field_is_value(tree: KernelTree, node: Node) -> bool:
    """Whether ``node`` is the whole value of a declaration: one step of a fused kernel."""
    parent = tree.parent(node)
    return parent is not None and parent.type == "init_declarator"


def _drop_residual(tree: KernelTree) -> Iterator[Mutation]:
    for node, kept, dropped in _fused(tree, "+"):
        named = bool(_RESIDUAL.search(_name_of(tree, dropped)))
        if (role(tree, dropped) == "aligned" or named) and number(tree, kept) is None:
            yield mutation(put(tree, node, tree.text(kept)))


# -- the order of an epilogue ----------


def _expand(tree: KernelTree, node: Node) -> Node:
    value = definition(tree, node)
    return strip(value) if value is not None else strip(node)


def _epilogue_reorder(tree: KernelTree) -> Iterator[Mutation]:
    for node in tree.nodes("binary_expression", "call_expression", "conditional_expression"):
        if not tree.is_float(node) or _in_sum(tree, node):
            continue
        sides = binary(tree, node, "+") if node.type == "binary_expression" else None
        if sides:
            yield from _bias_before_scale(tree, node, *sides)
            continue
        found = recognise(tree, node)
        if found is None or found.kind == "softplus":
            continue
        total = binary(tree, _expand(tree, found.argument), "+")
        for one, bias in (total, total[::-1]) if total else ():
            if number(tree, one) is None and _is_summand(tree, bias):
                text = _with_argument(tree, node, found.argument, tree.text(one))
                yield mutation(put(tree, node, f"{text} + {term(tree, bias)}"))
                break


def _bias_before_scale(tree: KernelTree, node: Node, left: Node, right: Node) -> Iterator[Mutation]:
    for scaled, bias in ((left, right), (right, left)):
        factors = binary(tree, _expand(tree, scaled), "*")
        if not factors or not _is_summand(tree, bias):
            continue
        value, scale = factors if not _is_factor(tree, factors[0]) else factors[::-1]
        if _is_factor(tree, scale) and not _is_factor(tree, value):
            text = f"({term(tree, value)} + {term(tree, bias)}) * {atom(tree, scale)}"
            yield mutation(replace(node, fit(tree, node, text)))
            return


def _is_summand(tree: KernelTree, node: Node) -> bool:
    return _is_bias(tree, node) or role(tree, node) == "aligned"


def _is_factor(tree: KernelTree, node: Node) -> bool:
    return _is_scale(tree, node) or role(tree, node) == "constant"


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
            if not found or any(_is_output_index(tree, n) for n in found):
                continue  # an operand as large as the output is data, no parameter
            if len(found) == 1 and _is_dropped_elsewhere(tree, found[0]):
                continue
            yield mutation(*(replace(n, _default(tree, n, name)) for n in found))


def _default(tree: KernelTree, node: Node, name: str) -> str:
    """1 for a factor, 0 for a summand, by what the read is used for."""
    user = _first_use(tree, node)
    if _BIAS.search(name) or re.search(r"mean|resid", name):
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
    if is_start and holder is not None and _is_summed(tree, field(holder, "declarator")):
        return bool(_BIAS.search(pointer_root(tree, node)))
    parent = tree.parent(use)
    if parent is None or parent.type != "binary_expression" or _in_sum(tree, use):
        return False
    return operator(tree, parent) in ("+", "*") and role(tree, use) in ("broadcast", "aligned")


# -- broadcasting ----------


def _broadcast_wrong_dim(tree: KernelTree) -> Iterator[Mutation]:
    for node in loads(tree):
        index, pointer = subscript(tree, node), pointer_root(tree, node)
        if index is None or _in_sum(tree, node) or _is_output_index(tree, node):
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
_SCALED = "const float* x, const float* scale, const float* bias, float* y, int n, int c"
_INDEX = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"


def _example(params: str, before: str, *after: str) -> Example:
    return Example(
        kernel(_INDEX + before, params), tuple(kernel(_INDEX + text, params) for text in after)
    )


DROP_BIAS = Rule(
    "drop-bias",
    "semantic",
    "a broadcast or scalar summand, or the bias an accumulator starts at, is removed",
    "the bias was not fused",
    _drop_bias,
    (
        _example(_BIASED, "    y[i] = x[i] * 2.0f + bias[i % c];", "    y[i] = x[i] * 2.0f;"),
        _example(
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
        _example(
            _SCALED,
            "    y[i] = x[i] * scale[i % c] + bias[i % c];",
            "    y[i] = x[i] + bias[i % c];",
        ),
        _example(
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
        _example(
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
        _example(
            _SCALED,
            "    y[i] = x[i] * scale[i % c] + bias[i % c];",
            "    y[i] = (x[i] + bias[i % c]) * scale[i % c];",
        ),
        _example(
            _BIASED,
            "    const float t1 = x[i] + bias[i % c];\n    y[i] = fmaxf(t1, 0.0f);",
            "    const float t1 = x[i] + bias[i % c];\n    y[i] = fmaxf(x[i], 0.0f) + bias[i % c];",
        ),
    ),
)
IGNORE_PARAMETER = Rule(
    "ignore-parameter",
    "semantic",
    "every read of a parameter becomes its default: 1 for a factor, 0 for a summand",
    "a learned parameter was taken for its initial value",
    _ignore_parameter,
    (
        _example(
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
        _example(
            _BIASED,
            "    y[i] = x[i] + bias[(i / n) % c];",
            "    y[i] = x[i] + bias[i % c];",
        ),
        _example(
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
        _example(
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
        _example(
            "const float* x, float* y, int n",
            "    if (i < n) y[i] = x[i] * 3.0f;",
            "    if (i < n) y[i] = 0.0f;",
            "    if (i < n) y[i] = x[i];",
        ),
    ),
)
