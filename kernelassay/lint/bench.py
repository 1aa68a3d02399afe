"""Evaluations of one problem's reference: fresh module, chosen precision, parameters and seed.

EXECUTES problem code: in a worker only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from kernelassay.errors import ProblemError, UnsupportedError
from kernelassay.kernelbench import official_seeds
from kernelassay.problem import LoadedProblem
from kernelassay.trace import hold_as_buffers

_FORWARD_SEED = 0


class Bench:
    """One loaded problem on one device.

    Every evaluation has a module of its own with the official parameters, since train mode, and
    some models' attributes, carry state from call to call.
    """

    def __init__(self, loaded: LoadedProblem, device: str) -> None:
        self.loaded = loaded
        self.device = torch.device(device)
        self.seeds = official_seeds()
        model = loaded.build_model()
        self.state = {name: value.clone() for name, value in model.state_dict().items()}
        self.parameters = {name: value.detach() for name, value in model.named_parameters()}
        # Tied parameters have one name here and several in the state.
        own = {id(value): name for name, value in model.named_parameters()}
        self._names: dict[str, list[str]] = {name: [] for name in self.parameters}
        for name, value in model.state_dict(keep_vars=True).items():
            if id(value) in own:
                self._names[own[id(value)]].append(name)
        self.first = self.draw(0)

    def draw(self, index: int) -> list[Any]:
        """The official input ``index``, drawn on the CPU as KernelBench does, on the device."""
        return [
            value.to(self.device) if isinstance(value, torch.Tensor) else value
            for value in self.loaded.draw(self.seeds[index])
        ]

    def module(
        self, dtype: torch.dtype | None = None, changed: Mapping[str, torch.Tensor] | None = None
    ) -> torch.nn.Module:
        """A fresh module in ``dtype`` (None: as built) with some parameters replaced."""
        model = self.loaded.build_model()
        state = dict(self.state)
        for name, value in (changed or {}).items():
            state.update(dict.fromkeys(self._names[name], value))
        with torch.no_grad():
            model.load_state_dict(state)
            hold_as_buffers(model)  # an RNN's initial state, say, moves with the module then
            return model.to(device=self.device, dtype=dtype)

    def call(
        self,
        model: torch.nn.Module,
        inputs: Sequence[Any],
        dtype: torch.dtype | None = None,
        seed: int = _FORWARD_SEED,
        mode: AbstractContextManager[Any] | None = None,
    ) -> torch.Tensor:
        """``model(*inputs)`` in ``dtype``. Raises ``ProblemError``, ``MemoryError``,
        or ``UnsupportedError`` for several outputs.
        """
        cast = [
            # A copy each time: a model may write into its inputs.
            _cast(value, dtype) if isinstance(value, torch.Tensor) else value
            for value in inputs
        ]
        before = torch.get_default_dtype()
        torch.manual_seed(seed)
        try:
            torch.set_default_dtype(dtype or before)
            with mode or nullcontext():
                outputs = self.loaded.forward(model, cast)
        except ProblemError as error:
            if isinstance(error.__cause__, torch.OutOfMemoryError):
                raise MemoryError(str(error)) from error
            raise
        finally:
            torch.set_default_dtype(before)
        if len(outputs) != 1:
            raise UnsupportedError(
                f"the module returns {len(outputs)} tensors", hint="lint judges a single output"
            )
        return outputs[0]

    def output(
        self,
        inputs: Sequence[Any],
        dtype: torch.dtype | None = None,
        changed: Mapping[str, torch.Tensor] | None = None,
        seed: int = _FORWARD_SEED,
    ) -> torch.Tensor:
        """The output of a fresh module."""
        return self.call(self.module(dtype, changed), inputs, dtype, seed)


def _cast(value: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return value.to(dtype, copy=True) if dtype and value.is_floating_point() else value.clone()
