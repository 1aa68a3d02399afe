"""Recurrent networks as single operators, also where PyTorch would unroll them over time.

On tensors without data, and under dispatch modes, PyTorch decomposes an LSTM into thousands of
calls: exporting six layers of 64 steps takes half a minute. Within :func:`whole`, recurrent modules
call operators of our own, which compute the same and are opaque to tracing:
``kernelassay::lstm``, ``gru``, ``rnn_tanh`` and ``rnn_relu``. Their arguments are those of
``aten::lstm.input``, with the initial states as a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import _VF, Tensor

KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_ARGUMENTS = (
    "(Tensor x, Tensor[] states, Tensor[] weights, bool biased, int layers, float dropout, "
    "bool train, bool bidirectional, bool batch_first)"
)
_library = torch.library.Library("kernelassay", "DEF")


def _compute(kind: str) -> Callable[..., tuple[Tensor, ...]]:
    function = getattr(torch._C._VariableFunctions, kind)

    def compute(x: Tensor, states: list[Tensor], *rest: Any) -> tuple[Tensor, ...]:
        results: tuple[Tensor, ...] = function(x, states if kind == "lstm" else states[0], *rest)
        return results

    return compute


def _shapes(x: Tensor, states: list[Tensor], *rest: Any) -> tuple[Tensor, ...]:
    bidirectional = rest[5]
    hidden = states[0].shape[-1]
    y = x.new_empty((*x.shape[:2], hidden * (2 if bidirectional else 1)))
    return (y, *(state.new_empty(state.shape) for state in states))


for _kind in KINDS:
    _results = "(Tensor, Tensor, Tensor)" if _kind == "lstm" else "(Tensor, Tensor)"
    _library.define(f"{_kind}{_ARGUMENTS} -> {_results}")
    _library.impl(_kind, _compute(_kind), "CompositeExplicitAutograd")
    torch.library.register_fake(f"kernelassay::{_kind}", _shapes, lib=_library)


@contextmanager
def whole() -> Iterator[None]:
    """Within, ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` call the operators of this module."""
    before = {kind: getattr(_VF, kind) for kind in KINDS}
    try:
        for kind in KINDS:
            setattr(_VF, kind, _whole(kind, before[kind]))
        yield
    finally:
        for kind, function in before.items():
            setattr(_VF, kind, function)


def _whole(kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
    operator = getattr(torch.ops.kernelassay, kind)

    def call(x: Tensor, states: Any, *rest: Any) -> Any:
        if isinstance(rest[0], Tensor) or x.dim() != 3:
            return original(x, states, *rest)  # a packed sequence: (data, sizes, states, ...)
        given = list(states) if isinstance(states, (tuple, list)) else [states]
        return operator(x, given, *rest)

    return call


def work(x: Tensor, states: list[Tensor], weights: list[Tensor], *rest: Any) -> int:
    """The multiply-adds of a network, counted as two: each weight once per step and sequence."""
    return 2 * x.shape[0] * x.shape[1] * sum(weight.numel() for weight in weights)
