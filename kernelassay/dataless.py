"""Tracing without data: shapes, strides and dtypes are all that a graph follows from.

Official shapes are gigabytes that a worker which traces and lowers has no room for. Inputs and
models are therefore made of fake tensors, at any size, and data is made only where the problem's
own code looks at it. Everything here EXECUTES problem code: in a worker only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kernelassay.errors import ProblemError
from kernelassay.problem import MODEL_SEED, LoadedProblem
from kernelassay.trace import Traced, trace

Loader = Callable[[], LoadedProblem]
"""Executes the problem file anew: what its code keeps must not be shared with runs on data."""


def draw_layout(loader: Loader) -> list[Any]:
    """The inputs at the problem's sizes, without data unless ``get_inputs()`` looks at it."""
    try:
        with _without_data():
            return loader().draw(MODEL_SEED)
    except ProblemError:
        return loader().draw(MODEL_SEED)


def trace_layout(loader: Loader, inputs: Sequence[Any]) -> Traced:
    """The graph at the shapes, strides and dtypes of ``inputs``, with or without data.

    The graph is one on the CPU, wherever the inputs lie. The model has no data either, except
    where it looks at its values, or the graph holds tensors that it made (a constant, a buffer that
    is not part of its state). Raises as :func:`trace.trace`.
    """
    mode = _without_data()
    with mode:
        layout = tuple(_like(x) if isinstance(x, Tensor) else x for x in inputs)
    try:
        with mode:
            model = loader().build_model(MODEL_SEED)
        traced = trace(model, layout)
        if not any(isinstance(x, FakeTensor) for x in traced.constants.values()):
            return traced
    except ProblemError:
        pass
    return trace(loader().build_model(MODEL_SEED), layout)


def _without_data() -> FakeTensorMode:
    # As torch.export makes its own: it takes over the mode that it finds the inputs in.
    return FakeTensorMode(shape_env=ShapeEnv(tracked_fakes=[]), allow_non_fake_inputs=True)


def _like(x: Tensor) -> Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cpu")
