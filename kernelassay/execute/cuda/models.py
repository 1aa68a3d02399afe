"""Models and parameters of a problem's own sizes, kept: making them on the CPU takes seconds."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelassay.inputs import InputSpec, moved, parameters
from kernelassay.problem import MODEL_SEED, LoadedProblem


class Models:
    """Those of one problem; others than of its own sizes are small and made anew."""

    def __init__(self) -> None:
        self._model: torch.nn.Module | None = None
        self._parameters: dict[str, dict[str, Tensor]] = {}

    def model(self, loaded: LoadedProblem) -> torch.nn.Module:
        """A model to run; whoever runs it sets its parameters and its dtype."""
        if loaded.overrides:
            return loaded.build_model(MODEL_SEED)
        if self._model is None:
            self._model = loaded.build_model(MODEL_SEED)
        return self._model

    def parameters(self, loaded: LoadedProblem, spec: InputSpec) -> dict[str, Tensor]:
        """The state of ``spec`` on the device; not to be changed."""
        if loaded.overrides:
            return _on_device(parameters(loaded, spec))
        if spec.parameters not in self._parameters:
            self._parameters[spec.parameters] = _on_device(parameters(loaded, spec))
        return self._parameters[spec.parameters]


def _on_device(state: dict[str, Tensor]) -> dict[str, Tensor]:
    device = torch.device("cuda")
    return {name: moved(value, device) for name, value in state.items()}
