"""Run a traced graph with every call replaced by its kernel, in one style."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kernelassay.kernel import Call, Scalar
from kernelassay.substrate import bind
from kernelassay.trace import Traced, evaluate, meta

# (source, scalars, operands, outputs): fills the outputs, keyed by pointer parameter.
Runner = Callable[[str, Mapping[str, Scalar], Mapping[str, Tensor], Mapping[str, Tensor]], Any]


def run_lowered(
    traced: Traced,
    calls: Sequence[Call],
    inputs: Sequence[Any],
    style: str,
    run: Runner,
    state: Mapping[str, Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """The user outputs of ``traced`` when ``style`` of each call computes its nodes.

    A call that lacks ``style`` runs in its first one.
    """
    values = traced.feed(state or {}, inputs)
    by_output = {node: call for call in calls for _, node in call.outputs}
    replaced = {node for call in calls for node in call.nodes}
    with torch.no_grad():
        for name, node in traced.nodes.items():
            if name in by_output:
                call = by_output[name]
                values[name] = _run_call(call, traced, values, style, run)
            elif node.op != "placeholder" and name not in replaced:
                values[name] = evaluate(node, values)
    return tuple(values[name] for name in traced.outputs)


def _run_call(
    call: Call, traced: Traced, values: Mapping[str, Any], style: str, run: Runner
) -> Tensor:
    operands = {parameter: values[node].contiguous() for parameter, node in call.operands}
    (parameter, node), *more = call.outputs
    assert not more, "these templates have one output"
    shape_of = meta(traced.nodes[node])
    output = torch.empty(shape_of.shape, dtype=getattr(torch, shape_of.dtype))
    source = call.sources.get(style) or next(iter(call.sources.values()))
    run(source, bind(call, traced), operands, {parameter: output})
    return output
