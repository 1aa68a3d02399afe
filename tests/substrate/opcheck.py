"""Run one lowered operator in isolation, in either style, against the same graph in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from kernelassay.kernel import Call
from kernelassay.styles import STYLES
from kernelassay.substrate.lowering import bind, lower
from kernelassay.trace import Traced, trace
from tests.substrate.harness import Bench

TOLERANCE = 1e-5
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
        return _trace(self, shapes)

    def call(self) -> Call:
        """The one kernel of the graph at the first shapes."""
        return _call(self)


# Tracing is most of the cost of a test; the styles share it.
@cache
def _trace(case: Case, shapes: Shapes) -> Traced:
    return trace(Function(case.function), tuple(case.inputs(shapes)))


@cache
def _call(case: Case) -> Call:
    calls = [c for c in lower(case.trace(case.shapes[0])) if c.template == case.template]
    assert len(calls) == 1, f"expected one {case.template}"
    return calls[0]


def check(case: Case, style: str, bench: Bench) -> None:
    """Assert that the kernel agrees with float64 at all shapes of ``case``, without a finding.

    A style of 16-bit operands gets operands that those types hold exactly: the bound is the same.
    """
    call = case.call()
    for shapes in case.shapes:
        traced = case.trace(shapes)
        inputs = case.inputs(shapes)
        if STYLES[style].relaxed:
            inputs = [t.bfloat16().to(t.dtype) if t.is_floating_point() else t for t in inputs]
        exact = traced.run({}, [t.double() if t.is_floating_point() else t for t in inputs])
        operands = {
            parameter: exact[name].to(_dtype(traced, name)).contiguous()
            for parameter, name in call.operands
        }
        outputs = {
            parameter: torch.empty(exact[name].shape, dtype=_dtype(traced, name))
            for parameter, name in call.outputs
        }
        findings = bench.run(call.sources[style], bind(call, traced), operands, outputs)
        assert not findings, (shapes, findings)
        for parameter, name in call.outputs:
            error = error_of(outputs[parameter], exact[name])
            assert error <= TOLERANCE, f"{parameter} is off by {error} at {shapes}"


def error_of(actual: Tensor, exact: Tensor) -> float:
    """Largest error relative to 1 + |exact|; integers must be equal, infinities in their place."""
    if not exact.is_floating_point():
        return 0.0 if torch.equal(actual, exact) else float("inf")
    distance = (actual.double() - exact).abs() / (1 + exact.abs())
    equal = actual.double() == exact
    return float(distance.masked_fill(equal, 0.0).nan_to_num(nan=float("inf")).max())


def _dtype(traced: Traced, name: str) -> torch.dtype:
    dtype: torch.dtype = traced.nodes[name].meta["val"].dtype
    return dtype
