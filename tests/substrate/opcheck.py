"""Run one lowered operator in isolation, in either style, against the same graph in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kernelassay.kernel import Call, Scalar
from kernelassay.substrate.lowering import bind, lower
from kernelassay.trace import Traced, trace

Shapes = tuple[tuple[int, ...], ...]


class Function(nn.Module):
    """A parameterless module around a function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


@dataclass(frozen=True)
class Case:
    """A function of tensors, the template it must lower to, and input shapes to try.

    The kernel is made at the first shapes and used at all of them.
    """

    template: str
    function: Callable[..., Any]
    shapes: tuple[Shapes, ...]
    draw: Callable[[Shapes], list[Tensor]] | None = None

    def inputs(self, shapes: Shapes) -> list[Tensor]:
        """Float32 inputs of these shapes, from a fixed seed."""
        torch.manual_seed(17)
        if self.draw is not None:
            return self.draw(shapes)
        return [torch.randn(shape) for shape in shapes]

    def trace(self, shapes: Shapes) -> Traced:
        """The graph at these shapes."""
        return trace(Function(self.function), tuple(self.inputs(shapes)))

    def call(self) -> Call:
        """The one kernel of the graph at the first shapes."""
        calls = [c for c in lower(self.trace(self.shapes[0])) if c.template == self.template]
        assert len(calls) == 1, f"expected one {self.template}"
        return calls[0]


@dataclass(frozen=True)
class Comparison:
    """One output of a kernel beside what it should be."""

    actual: Tensor
    exact: Tensor

    def error(self) -> float:
        """Largest error relative to 1 + |exact|; integer results must agree exactly."""
        if not self.exact.is_floating_point():
            return 0.0 if torch.equal(self.actual, self.exact) else float("inf")
        distance = (self.actual.double() - self.exact).abs() / (1 + self.exact.abs())
        same = self.actual.double() == self.exact
        return float(distance.masked_fill(same, 0.0).nan_to_num(nan=float("inf")).max())


Runner = Callable[[str, Mapping[str, Scalar], Mapping[str, Tensor], Mapping[str, Tensor]], Any]


def compare(
    case: Case, call: Call, shapes: Shapes, style: str, run: Runner
) -> Sequence[Comparison]:
    """Run ``call`` in ``style`` by ``run`` at ``shapes``.

    ``run`` gets the source, the scalars, the operands and the outputs, which it fills.
    """
    traced = case.trace(shapes)
    inputs = case.inputs(shapes)
    exact = traced.run({}, [t.double() if t.is_floating_point() else t for t in inputs])
    operands = {
        parameter: exact[name].to(traced.nodes[name].meta["val"].dtype).contiguous()
        for parameter, name in call.operands
    }
    outputs = {
        parameter: torch.empty(exact[name].shape, dtype=traced.nodes[name].meta["val"].dtype)
        for parameter, name in call.outputs
    }
    run(call.sources[style], bind(call, traced), operands, outputs)
    return [Comparison(outputs[parameter], exact[name]) for parameter, name in call.outputs]
