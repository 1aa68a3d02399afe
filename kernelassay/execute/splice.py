"""What a replaced call changes in the graph around it."""

from __future__ import annotations

from kernelassay.draws import DRAWS
from kernelassay.kernel import Call
from kernelassay.trace import Traced


def downstream(call: Call, traced: Traced) -> tuple[str, ...]:
    """The nodes to compute again when the outputs of ``call`` differ, in execution order."""
    changed = {name for _, name in call.outputs}
    order: list[str] = []
    for name, node in traced.nodes.items():
        if name in call.nodes or node.op != "call_function" or str(node.target) in DRAWS:
            continue  # a draw takes the shape of its operand alone
        if any(source.name in changed for source in node.all_input_nodes):
            changed.add(name)
            order.append(name)
    return tuple(order)
