"""A whole forward as one call: the graph with a single node, and a user's kernel in its place.

The module is run, not exported, so that a user's kernel may stand in for a forward that
``torch.export`` refuses. EXECUTES problem code: in a worker only.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from kernelassay.compile.launcher import launch_plan
from kernelassay.errors import ProblemError, UnsupportedError, UsageError
from kernelassay.kernel import OPTIMISED, Call, Launch, Scalar
from kernelassay.problem import MODEL_SEED, LoadedProblem, device_hint
from kernelassay.references import flat_outputs
from kernelassay.trace import Traced, meta, state_of
from kernelassay.user.header import stated_shape
from kernelassay.user.kernel_file import KernelFile
from kernelassay.user.launch_text import Buffer, Quantity

NODE = "forward"

# What the elements of a buffer of some dtype may be called in C.
_ELEMENTS = {
    "float32": {"float", "float2", "float3", "float4"},
    "float64": {"double", "double2", "double4"},
    "float16": {"half", "__half", "half2", "__half2"},
    "int64": {"long long", "long", "int64_t", "longlong2", "longlong4", "ptrdiff_t"},
    "int32": {"int", "int32_t", "int2", "int3", "int4"},
    "int16": {"short", "int16_t"},
    "int8": {"signed char", "char", "int8_t"},
    "uint8": {"unsigned char", "uint8_t", "uchar", "char"},
    "bool": {"bool", "unsigned char", "uint8_t", "char", "signed char"},
}
_SIZES = {
    "float32": 4, "float64": 8, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1,
}  # fmt: skip


def trace_whole(module: nn.Module, inputs: tuple[Any, ...]) -> Traced:
    """The graph of ``module`` with one node that computes all of it.

    Placeholders are ``arg0``, ``arg1``, ... for the inputs and ``state_0``, ... for parameters
    and buffers; outputs are ``out0``, ``out1``, ... The module is run twice.

    Raises:
        UnsupportedError: the module writes to an input, draws random numbers, or returns other
            than a tensor or a flat tuple or list of tensors that a kernel can compute.
    """
    leaves = pytree.tree_leaves(inputs)
    if len(leaves) != len(inputs):
        raise UnsupportedError(
            "an input is a tuple, a list or a dict",
            hint="let forward take tensors and plain numbers, one by one",
        )
    state = state_of(module)
    outputs = _checked_outputs(module, state, inputs)
    graph = fx.Graph()
    arguments = [_placeholder(graph, f"arg{i}", value) for i, value in enumerate(inputs)]
    kept = module.state_dict()
    parameters = {f"state_{i}": name for i, name in enumerate(state)}
    fed = [_placeholder(graph, node, state[name]) for node, name in parameters.items()]
    forward = _Forward(module, tuple(state))
    whole = graph.create_node("call_function", forward, (tuple(arguments), tuple(fed)), name=NODE)
    results = []
    for index, value in enumerate(outputs):
        node = graph.create_node(
            "call_function", operator.getitem, (whole, index), name=f"out{index}"
        )
        node.meta["val"] = value.to("meta")
        results.append(node)
    graph.output(tuple(results))
    nodes = {node.name: node for node in graph.nodes if node.op != "output"}
    return Traced(
        fx.GraphModule(nn.Module(), graph),
        nodes,
        parameters,
        tuple(node.name for node in arguments),
        tuple(node.name for node in results),
        {node: state[name] for node, name in parameters.items() if name not in kept},
    )


class _Forward:
    """The target of the one node: a module as a function of its inputs and its state."""

    __name__ = NODE

    def __init__(self, module: nn.Module, names: Sequence[str]) -> None:
        self.module = module
        self.names = names

    def __repr__(self) -> str:
        return NODE  # part of a graph's signature

    def __call__(self, inputs: Sequence[Any], values: Sequence[Tensor]) -> tuple[Tensor, ...]:
        # A forward in train mode changes buffers: it gets copies.
        state = {name: v.clone() for name, v in zip(self.names, values, strict=True)}
        with torch.no_grad():
            try:
                found = torch.func.functional_call(self.module, state, tuple(inputs))
            except Exception as error:  # problem code raises whatever it likes
                first = str(error).strip().splitlines()[:1]
                raise ProblemError(
                    f"the model fails on its inputs: {type(error).__name__}: {''.join(first)}",
                    hint=device_hint(str(error)),
                ) from error
        return flat_outputs(found)


def whole_call(kernel: KernelFile, traced: Traced) -> Call:
    """The call that puts ``kernel`` in the place of the whole forward.

    Raises:
        UsageError: a binding names a tensor the problem does not have, an output is not bound, or
            a tensor's dtype is not that of the parameter, which the message names.
    """
    if len(kernel.outputs) != len(traced.outputs) or {b.reference for b in kernel.outputs} != set(
        traced.outputs
    ):
        bound = ", ".join(sorted(b.reference for b in kernel.outputs))
        raise UsageError(
            f"the problem has the outputs {', '.join(traced.outputs)}, the header binds {bound}",
            where=kernel.path,
            hint="bind each output once: `// kernelassay: y = out0`",
        )
    nodes = {b.parameter: _node(kernel, traced, b.reference, b.line) for b in kernel.buffers}
    for buffer in kernel.buffers:
        _check_type(kernel, buffer, traced.nodes[nodes[buffer.parameter]])
        _check_shape(kernel, buffer, traced)
    operands = tuple((b.parameter, nodes[b.parameter]) for b in kernel.buffers if not b.is_output)
    outputs = tuple((b.parameter, nodes[b.parameter]) for b in kernel.outputs)
    starts = tuple((b.parameter, _start(kernel, b, traced)) for b in kernel.outputs if b.start)
    return Call(
        id=f"k00_{kernel.name}",
        template=kernel.name,
        sources={OPTIMISED: kernel.source},
        operands=operands,
        outputs=outputs,
        nodes=(NODE, *traced.outputs),
        scalars=lambda found: _quantities(kernel, traced, found),
        starts=starts,
    )


def accepts(kernel: KernelFile, loaded: LoadedProblem) -> bool:
    """Whether the header's requirements hold at the sizes of a loaded problem."""
    if not kernel.requirements:
        return True
    try:
        traced = trace_whole(loaded.build_model(), tuple(loaded.draw(MODEL_SEED)))
        _quantities(kernel, traced, traced.nodes)
    except UnsupportedError:
        return False
    return True


def _checked_outputs(
    module: nn.Module, state: Mapping[str, Tensor], inputs: tuple[Any, ...]
) -> tuple[Tensor, ...]:
    before = [value.clone() if isinstance(value, Tensor) else value for value in inputs]
    forward = _Forward(module, tuple(state))
    found = forward(inputs, tuple(state.values()))
    for position, (old, new) in enumerate(zip(before, inputs, strict=True)):
        if isinstance(old, Tensor) and not _same(old, new):
            raise UnsupportedError(
                f"the module writes to its input {position}",
                hint="let forward work on a copy: x = x.clone()",
            )
    again = forward(inputs, tuple(state.values()))
    if not all(_same(a, b) for a, b in zip(found, again, strict=True)):
        raise UnsupportedError(
            "the module draws random numbers: two runs differ",
            hint="a kernel can only be compared with a reference that is a function of its inputs",
        )
    return found


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)))


def _placeholder(graph: fx.Graph, name: str, value: Any) -> fx.Node:
    node = graph.placeholder(name)
    node.meta["val"] = value.detach().to("meta") if isinstance(value, Tensor) else value
    return node


def _node(kernel: KernelFile, traced: Traced, reference: str, line: int) -> str:
    """The node a reference names."""
    known = {name: name for name in (*traced.inputs, *traced.outputs)}
    known |= {f"param:{name}": node for node, name in traced.parameters.items()}
    if reference not in known:
        raise UsageError(
            f"the problem has no {reference}; it has {', '.join(known)}",
            where=f"{kernel.path}:{line}",
        )
    return known[reference]


def _start(kernel: KernelFile, buffer: Buffer, traced: Traced) -> str:
    node = _node(kernel, traced, buffer.start, buffer.line)
    source, target = (meta(traced.nodes[name]) for name in (node, buffer.reference))
    if source != target:
        raise UsageError(
            f"{buffer.reference} cannot start as a copy of {buffer.start}: shape and dtype are"
            f" {target.shape} {target.dtype} and {source.shape} {source.dtype}",
            where=f"{kernel.path}:{buffer.line}",
        )
    return node


def _check_type(kernel: KernelFile, buffer: Buffer, node: fx.Node) -> None:
    where = f"{kernel.path}:{buffer.line}"
    if not isinstance(node.meta["val"], Tensor):
        raise UsageError(
            f"{buffer.what} needs a tensor, {buffer.reference} is the number {node.meta['val']}",
            where=where,
        )
    dtype = meta(node).dtype
    if dtype not in _ELEMENTS:
        raise UnsupportedError(
            f"{buffer.reference} is {dtype}, which no kernel here takes", where=where
        )
    words = [w for w in buffer.type.rstrip("*").split() if w not in ("const", "volatile")]
    element = " ".join(words).replace("unsigned int", "uint").strip()
    plain = " ".join(w for w in words if w not in ("unsigned", "int") or w == words[0])
    if element == "void" or element in _ELEMENTS[dtype] or _same_width(plain, words, dtype):
        return
    raise UsageError(
        f"{buffer.what} is bound to {buffer.reference}, which is {dtype}",
        where=where,
        hint=f"its elements would be {' or '.join(sorted(_ELEMENTS[dtype])[:3])}",
    )


def _check_shape(kernel: KernelFile, buffer: Buffer, traced: Traced) -> None:
    if not buffer.shape:
        return
    values = {name: traced.nodes[name].meta["val"] for name in traced.inputs}
    shapes = {name: tuple(v.shape) for name, v in values.items() if isinstance(v, Tensor)}
    where = f"{kernel.path}:{buffer.line}"
    stated, found = stated_shape(buffer.shape, shapes, where), meta(traced.nodes[buffer.reference])
    if stated != found.shape:
        raise UsageError(
            f"the header states the shape {list(stated)} of {buffer.reference}, "
            f"the problem has {list(found.shape)}",
            where=where,
        )


def _same_width(plain: str, words: Sequence[str], dtype: str) -> bool:
    """An unsigned integer of the width of a signed dtype, or a vector of such."""
    widths = {"unsigned": 4, "uint32_t": 4, "uint": 4, "unsigned long": 8, "uint64_t": 8,
              "unsigned long long": 8, "size_t": 8, "uint16_t": 2, "unsigned short": 2,
              "ulong": 8, "ulonglong": 8, "ushort": 2}  # fmt: skip
    vector = plain[:-1] if plain[-1:] in ("2", "3", "4") else plain
    found = widths.get(plain) or (widths.get(vector) if vector.startswith("u") else None)
    return dtype.startswith("int") and found == _SIZES[dtype]


def _quantities(
    kernel: KernelFile, traced: Traced, nodes: Mapping[str, fx.Node]
) -> Mapping[str, Scalar]:
    """The numbers ``launch`` takes, at the shapes of ``nodes``.

    Raises ``UnsupportedError`` if a requirement of the header does not hold.
    """
    values = {q.parameter: _quantity(kernel, traced, q, nodes) for q in kernel.quantities}
    if not kernel.probe:
        return values
    inputs = {q.parameter: _quantity(kernel, traced, q, nodes) for q in kernel.probe_quantities}
    step = launch_plan(kernel.probe, inputs).steps[0]
    assert isinstance(step, Launch)
    found = [value for value in step.arguments if isinstance(value, int | float)]
    own = len(kernel.expressions)
    for (shown, line), holds in zip(kernel.requirements, found[own:], strict=True):
        if not holds:
            raise UnsupportedError(f"the kernel requires {shown}", where=f"{kernel.path}:{line}")
    return {**values, **dict(zip(kernel.expressions, found[:own], strict=True))}


def _quantity(
    kernel: KernelFile, traced: Traced, quantity: Quantity, nodes: Mapping[str, fx.Node]
) -> Scalar:
    where = f"{kernel.path}:{quantity.line}"
    value = nodes[_node(kernel, traced, quantity.reference, quantity.line)].meta["val"]
    if quantity.axis == "value":
        if isinstance(value, bool | int | float):
            return value
        raise UsageError(
            f"{quantity.what} needs a number, {quantity.reference} is a tensor",
            where=where,
            hint=f"sizes are written {quantity.reference}.shape[0]",
        )
    if not isinstance(value, Tensor):
        raise UsageError(f"{quantity.reference} is a number and has no shape", where=where)
    if quantity.axis == "numel":
        return int(value.numel())
    if quantity.axis == "nbytes":
        return int(value.numel() * value.element_size())
    assert isinstance(quantity.axis, int)
    if not -value.dim() <= quantity.axis < value.dim():
        raise UsageError(
            f"{quantity.reference} has {value.dim()} dimensions, so no shape[{quantity.axis}]",
            where=where,
        )
    return int(value.shape[quantity.axis])
