"""LSTM, GRU and plain recurrent networks, whole, in both styles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelassay.compile import parse_launcher
from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.substrate import bind, lower
from kernelassay.trace import meta, state_of, trace
from tests.substrate.harness import Bench

TOLERANCE = 1e-5
# (steps, sequences, features, hidden): odd, one of each, more units than a block has threads.
SIZES = ((9, 3, 12, 20), (1, 1, 1, 1), (5, 2, 17, 150))


@dataclass(frozen=True)
class Kind:
    """A module class, its options, and which of its results is returned."""

    module: type[nn.Module]
    options: dict[str, Any]
    result: str = "y"


KINDS = {
    "lstm": Kind(nn.LSTM, {}),
    "lstm, last hidden state": Kind(nn.LSTM, {"num_layers": 2}, "h"),
    "lstm, last cell state": Kind(nn.LSTM, {"num_layers": 2, "batch_first": True}, "c"),
    "lstm in both directions": Kind(nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    "lstm without biases": Kind(nn.LSTM, {"bias": False, "bidirectional": True}, "c"),
    "gru": Kind(nn.GRU, {}),
    "gru, batch first": Kind(nn.GRU, {"num_layers": 3, "batch_first": True}),
    "gru in both directions": Kind(nn.GRU, {"num_layers": 2, "bidirectional": True}, "h"),
    "gru without biases": Kind(nn.GRU, {"bias": False}),
    "tanh": Kind(nn.RNN, {"num_layers": 2}),
    "relu in both directions": Kind(nn.RNN, {"nonlinearity": "relu", "bidirectional": True}, "h"),
}
by_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


class Network(nn.Module):
    """One result of a recurrent module."""

    def __init__(self, kind: Kind, features: int, hidden: int) -> None:
        super().__init__()
        torch.manual_seed(features + hidden)
        self.network = kind.module(features, hidden, **kind.options)
        self.kind = kind

    def forward(self, x: Tensor, *states: Tensor) -> Tensor:
        y, last = self.network(x, states if len(states) > 1 else states[0])
        states = last if isinstance(last, tuple) else (last,)
        return {"y": y, **dict(zip("hc", states, strict=False))}[self.kind.result]


def inputs_of(kind: Kind, size: tuple[int, int, int, int]) -> tuple[Tensor, ...]:
    steps, batch, features, hidden = size
    layers = kind.options.get("num_layers", 1) * (1 + kind.options.get("bidirectional", False))
    shape = (batch, steps) if kind.options.get("batch_first") else (steps, batch)
    states = 2 if kind.module is nn.LSTM else 1
    return (torch.randn(*shape, features), *(torch.randn(layers, batch, hidden),) * states)


@by_kind
def test_networks_agree_with_float64_and_have_no_findings(kind: Kind, bench: Bench) -> None:
    (call,) = lower(trace(Network(kind, 6, 5), inputs_of(kind, (4, 2, 6, 5))))
    for size in SIZES:
        module, inputs = Network(kind, *size[2:]), inputs_of(kind, size)
        traced = trace(module, inputs)
        values = traced.feed(state_of(module), inputs)
        operands = {name: values[node].contiguous() for name, node in call.operands}
        exact = module.double()(*(x.double() for x in inputs)).detach()
        for style in (PLAIN, OPTIMISED):
            ((name, node),) = call.outputs
            output = torch.empty(meta(traced.nodes[node]).shape)
            scalars = bind(call, traced)
            assert not bench.run(call.sources[style], scalars, operands, {name: output})
            assert float((output - exact).abs().max()) <= TOLERANCE, (size, style)


@by_kind
def test_styles_share_launch_parameters_that_the_call_binds(kind: Kind) -> None:
    traced = trace(Network(kind, 6, 5), inputs_of(kind, (4, 2, 6, 5)))
    (call,) = lower(traced)
    plain, optimised = (parse_launcher(call.sources[style]) for style in (PLAIN, OPTIMISED))
    assert plain.pointer_parameters == optimised.pointer_parameters
    assert plain.scalar_parameters == optimised.scalar_parameters
    names = {name for name, _ in (*call.operands, *call.outputs)}
    assert {name for name, _ in plain.pointer_parameters} == names
    assert {name for name, _ in plain.scalar_parameters} == set(bind(call, traced))


def test_several_results_are_written_by_one_call(bench: Bench) -> None:
    class All(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(3, 4, 2)

        def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            y, (h, c) = self.lstm(x, (h, c))
            return y, h, c

    module, states = All(), torch.randn(2, 2, 5, 4)
    inputs = (torch.randn(7, 5, 3), *states)
    traced = trace(module, inputs)
    (call,) = lower(traced)
    values = traced.feed(state_of(module), inputs)
    operands = {name: values[node].contiguous() for name, node in call.operands}
    outputs = {name: torch.empty(meta(traced.nodes[node]).shape) for name, node in call.outputs}
    assert not bench.run(call.sources[OPTIMISED], bind(call, traced), operands, outputs)
    for output, expected in zip(outputs.values(), module(*inputs), strict=True):
        assert torch.allclose(output, expected, atol=TOLERANCE)


def test_projections_are_named_as_unsupported() -> None:
    class Projected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(3, 4, proj_size=2)

        def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
            return self.lstm(x, (h, c))[0]

    inputs = (torch.randn(5, 2, 3), torch.randn(1, 2, 2), torch.randn(1, 2, 4))
    with pytest.raises(UnsupportedError, match="projections"):
        lower(trace(Projected(), inputs))
