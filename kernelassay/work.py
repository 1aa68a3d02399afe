"""How much the calls of a traced graph compute, move and keep, from its shapes alone.

No data is needed, so that sizes no machine here could hold are counted as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from kernelassay.execute.splice import downstream
from kernelassay.kernel import Call
from kernelassay.measure import flop_count
from kernelassay.substrate.lowering import is_getitem
from kernelassay.timing import CallWork, UnitWork, Work
from kernelassay.trace import Traced

DOUBLE = 2
"""How many times as large a value is in float64."""

_POOLS = ("aten::max_pool", "aten::avg_pool", "aten::_adaptive", "aten::adaptive")
# Not marked as views by PyTorch, but their result lies where their operand does.
_ALIASES = frozenset({"aten._unsafe_view.default", "aten.reshape.default"})


def unit_work(calls: Sequence[Call], traced: Traced) -> UnitWork:
    """The work of a unit at the sizes ``traced`` has."""
    nodes = {name: node_work(node) for name, node in traced.nodes.items()}
    return UnitWork(
        forward=_total(nodes.values()),
        calls={
            call.id: CallWork(
                call.template, call_work(call, traced), after_work(call, traced, nodes)
            )
            for call in calls
        },
        peak_bytes=peak_bytes(traced),
    )


def call_work(call: Call, traced: Traced) -> Work:
    """One run of a call's kernel.

    A fused chain reads what it takes from outside and writes its outputs, each once; what it hands
    from node to node stays in registers.
    """
    touched = dict.fromkeys(
        name for _, name in (*call.operands, *call.outputs, *call.starts) if name in traced.nodes
    )
    return Work(
        flops=sum(node_flops(traced.nodes[name]) for name in call.nodes),
        bytes=sum(_nbytes(traced.nodes[name]) for name in touched),
    )


def after_work(call: Call, traced: Traced, nodes: Mapping[str, Work]) -> Work:
    """What a changed output of ``call`` causes: the nodes downstream, and grading the outputs.

    An output is graded against two references. ``nodes`` has the work of each node.
    """
    outputs = sum(_nbytes(traced.nodes[name]) for name in traced.outputs)
    return _total(nodes[name] for name in downstream(call, traced)) + Work(0, 4 * outputs)


def node_work(node: fx.Node) -> Work:
    """One node evaluated by itself, as PyTorch does: it reads all operands, and writes."""
    if not _computes(node):
        return Work()
    moved = [*_leaves(node), *(leaf for source in node.all_input_nodes for leaf in _leaves(source))]
    return Work(node_flops(node), sum(leaf.numel() * leaf.element_size() for leaf in moved))


def node_flops(node: fx.Node) -> int:
    """FLOP by the formula of ``torch.utils.flop_counter``.

    Without a formula, one for each element of the largest operand or output, and for a pooling
    window one for each element it covers.
    """
    if not _computes(node):
        return 0
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        counted = flop_count(node.target, args, kwargs, node.meta["val"])
        if counted:
            return counted
    written = max((leaf.numel() for leaf in _leaves(node)), default=0)
    read = [leaf.numel() for source in node.all_input_nodes for leaf in _leaves(source)]
    window = 1
    if schema is not None and schema.name.startswith(_POOLS):
        named = {a.name: value for a, value in zip(schema.arguments, args, strict=False)}
        window = math.prod(named.get("kernel_size", ()))
    return max([written * window, *read])


def peak_bytes(traced: Traced) -> int:
    """An estimate of the memory a unit takes at the sizes ``traced`` has, in bytes.

    That is the larger of two moments. During the float64 forward there are inputs, parameters and
    outputs in float32, and inputs, parameters and the largest set of live values at twice their
    size. Afterwards there are inputs, parameters, the value of every node that is no view, outputs
    in float32 and float64, and as much as those once more for a candidate's buffers and what is
    computed again downstream.
    """
    fed = sum(_nbytes(node) for node in traced.nodes.values() if node.op == "placeholder")
    kept = sum(_nbytes(node) for node in traced.nodes.values() if _computes(node))
    outputs = sum(_nbytes(traced.nodes[name]) for name in traced.outputs)
    forward = fed + outputs + DOUBLE * (fed + largest_live(traced))
    return max(forward, fed + kept + (2 + DOUBLE) * outputs + largest_live(traced))


def largest_live(traced: Traced) -> int:
    """The bytes of the largest set of computed values that are needed at one time."""
    order = list(traced.nodes.values())
    last = {_base(traced.nodes[name]): len(order) for name in traced.outputs}
    for index, node in enumerate(order):
        for source in node.all_input_nodes:
            base = _base(source)
            last[base] = max(last.get(base, 0), index)
    ending: dict[int, list[fx.Node]] = {}
    for node, index in last.items():
        ending.setdefault(index, []).append(node)
    live = largest = 0
    for index, node in enumerate(order):
        live += _nbytes(node) if _computes(node) else 0
        largest = max(largest, live)
        live -= sum(_nbytes(ended) for ended in ending.get(index, ()) if _computes(ended))
    return largest


def _base(node: fx.Node) -> fx.Node:
    """The node whose memory a view, or one result of several, lies in."""
    while node.op == "call_function" and not _computes(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _computes(node: fx.Node) -> bool:
    """Whether a node makes memory of its own."""
    if node.op != "call_function" or is_getitem(node):
        return False
    return not getattr(node.target, "is_view", False) and str(node.target) not in _ALIASES


def _leaves(node: fx.Node) -> Iterator[Tensor]:
    value = node.meta.get("val")
    if value is None:  # a whole forward: its results have values, it has none
        for user in node.users:
            if is_getitem(user):
                yield from _leaves(user)
        return
    yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


def _nbytes(node: fx.Node) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in _leaves(node))


def _total(parts: Iterable[Work]) -> Work:
    return sum(parts, Work())


__all__ = ["after_work", "call_work", "node_flops", "node_work", "peak_bytes", "unit_work"]
