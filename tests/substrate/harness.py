"""Run a traced graph with every call replaced by its kernel, on the checked CPU executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernelassay.compile import parse_launcher
from kernelassay.execute.cpu import (
    CpuDevice,
    build_original,
    build_runtime,
    find_compiler,
)
from kernelassay.kernel import Call, Finding, Scalar
from kernelassay.substrate import bind
from kernelassay.trace import Traced, evaluate, meta

FUEL = 50_000_000


@dataclass(frozen=True)
class Ran:
    """The user outputs of a run, and the findings of all its kernels."""

    outputs: tuple[Tensor, ...]
    findings: tuple[Finding, ...]


class Bench:
    """The CPU executor of a test session."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._compiler = find_compiler()
        self._device = CpuDevice(build_runtime(self._compiler, cache))

    def run(
        self,
        source: str,
        scalars: Mapping[str, Scalar],
        operands: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor],
        order: str = "reverse",
    ) -> tuple[Finding, ...]:
        """Run ``launch`` of ``source`` and fill ``outputs``; every element must be written."""
        image = build_original(source, self._cache, self._compiler)
        plan = parse_launcher(source).plan(scalars)
        roles = {**dict.fromkeys(operands, "operand"), **dict.fromkeys(outputs, "output")}
        tensors = {**operands, **outputs}
        buffers = {
            name: self._device.buffer(name, tensor.nbytes, role=roles[name], right_aligned=True)
            for name, tensor in tensors.items()
        }
        for name, tensor in operands.items():
            buffers[name].array[:] = tensor.reshape(-1).numpy().view(np.uint8)
        for name in outputs:
            buffers[name].array[:] = 0xFF
        result = self._device.run(image, plan, buffers, fuel=FUEL, order=order)
        assert (result.outcome, result.written_inputs) == ("ok", ()), result
        for name, tensor in outputs.items():
            tensor.reshape(-1).numpy().view(np.uint8)[:] = buffers[name].array
        for buffer in buffers.values():
            buffer.release()
        return result.findings

    def run_graph(
        self,
        traced: Traced,
        calls: Sequence[Call],
        inputs: Sequence[Any],
        style: str,
    ) -> Ran:
        """Interpret ``traced`` with ``style`` of each call in place of its nodes.

        A call that lacks ``style`` runs in its first one.
        """
        values = traced.feed({}, inputs)
        by_output = {node: call for call in calls for _, node in call.outputs}
        replaced = {node for call in calls for node in call.nodes}
        findings: list[Finding] = []
        for name, node in traced.nodes.items():
            if name in by_output:
                values[name] = self._run_call(by_output[name], traced, values, style, findings)
            elif node.op != "placeholder" and name not in replaced:
                values[name] = evaluate(node, values)
        return Ran(tuple(values[name] for name in traced.outputs), tuple(findings))

    def _run_call(
        self,
        call: Call,
        traced: Traced,
        values: Mapping[str, Any],
        style: str,
        findings: list[Finding],
    ) -> Tensor:
        operands = {parameter: values[node].contiguous() for parameter, node in call.operands}
        (parameter, node), *more = call.outputs
        assert not more, "these templates have one output"
        expected = meta(traced.nodes[node])
        output = torch.empty(expected.shape, dtype=getattr(torch, expected.dtype))
        source = call.sources.get(style) or next(iter(call.sources.values()))
        findings += self.run(source, bind(call, traced), operands, {parameter: output})
        return output
