"""The two references of an input: the problem's own forward in float32 and in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernelassay import oracle, recurrent
from kernelassay.draws import drawing
from kernelassay.errors import ProblemError
from kernelassay.problem import MODEL_SEED, LoadedProblem


def run_model(
    loaded: LoadedProblem,
    state: Mapping[str, torch.Tensor],
    inputs: Sequence[Any],
    dtype: Any,
    seed: int = 0,
) -> list[NDArray[Any]]:
    """The module's own forward in ``dtype``, on a fresh module since train mode changes state.

    ``seed`` is that of the numbers the forward draws (:mod:`kernelassay.draws`). Raises
    ``ProblemError`` when it returns no tensor.
    """
    model = loaded.build_model(MODEL_SEED)
    model.load_state_dict(state)
    model = model.to(dtype)
    cast = [
        x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs
    ]
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with recurrent.whole(), drawing(seed):
            out = model(*cast)
    finally:
        torch.set_default_dtype(before)
    tensors = [out] if isinstance(out, torch.Tensor) else list(out)
    if not tensors or not all(isinstance(t, torch.Tensor) for t in tensors):
        raise ProblemError("forward returns no tensor", where=loaded.problem.id)
    return [np.ascontiguousarray(t.detach().numpy()) for t in tensors]


def disagreement(
    loaded: LoadedProblem, state: Mapping[str, torch.Tensor], inputs: Sequence[Any], seed: int = 0
) -> float:
    """The critical tolerance between the references; infinite where either is not finite."""
    with torch.no_grad():
        single = run_model(loaded, state, inputs, torch.float32, seed)
        exact = run_model(loaded, state, inputs, torch.float64, seed)
    if not all(np.isfinite(values).all() for values in (*single, *exact)):
        return float("inf")
    verdicts = [oracle.grade(s, e) for s, e in zip(single, exact, strict=True)]
    return oracle.merge(verdicts).critical_tolerance
