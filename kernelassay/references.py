"""The two references of an input: the problem's own forward in float32 and in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from kernelassay import oracle, recurrent
from kernelassay.draws import drawing
from kernelassay.errors import UnsupportedError
from kernelassay.problem import MODEL_SEED, LoadedProblem
from kernelassay.trace import hold_as_buffers

# Dtypes of outputs that can be compared element by element, as NumPy has them too.
GRADED = frozenset(
    {"float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"}
)


def run_model(
    loaded: LoadedProblem,
    state: Mapping[str, torch.Tensor],
    inputs: Sequence[Any],
    dtype: Any,
    seed: int = 0,
) -> list[torch.Tensor]:
    """The module's own forward in ``dtype``, on a fresh module since train mode changes state.

    ``seed`` is that of the numbers the forward draws: masks of dropouts, and :mod:`draws`. Raises
    ``UnsupportedError`` when it returns what no kernel can be compared with.
    """
    return run_module(loaded.build_model(MODEL_SEED), state, inputs, dtype, seed)


def run_module(
    model: torch.nn.Module,
    state: Mapping[str, torch.Tensor],
    inputs: Sequence[Any],
    dtype: Any,
    seed: int = 0,
    device: torch.device | None = None,
) -> list[torch.Tensor]:
    """:func:`run_model` of a module that may be changed, on ``device``, where the inputs lie.

    It is left in ``dtype``; a module of a wider one cannot take ``state`` as it is.
    """
    model.load_state_dict(state)
    hold_as_buffers(model)
    model = model.to(device=device, dtype=dtype)
    cast = [
        x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs
    ]
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    torch.manual_seed(seed)
    try:
        with recurrent.whole(), drawing(seed), device or nullcontext():
            out = model(*cast)
    finally:
        torch.set_default_dtype(before)
    return [t.detach().contiguous() for t in flat_outputs(out)]


def flat_outputs(found: Any) -> tuple[torch.Tensor, ...]:
    """The tensors a forward returned; ``UnsupportedError`` for what is not comparable."""
    values = (found,) if isinstance(found, torch.Tensor) else found
    if not isinstance(values, tuple | list) or not values:
        raise UnsupportedError(
            f"the module returns a {type(found).__name__}",
            hint="a Model returns one tensor, or a flat tuple of tensors",
        )
    for index, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            kind = "nested" if isinstance(value, tuple | list | dict) else "no tensor"
            raise UnsupportedError(
                f"output {index} is a {type(value).__name__} ({kind})",
                hint="a Model returns one tensor, or a flat tuple of tensors",
            )
        if value.layout != torch.strided or value.is_meta:
            raise UnsupportedError(
                f"output {index} has no plain values ({value.layout} on {value.device})",
                hint="return dense tensors on a device that holds values",
            )
        if str(value.dtype).removeprefix("torch.") not in GRADED:
            raise UnsupportedError(f"output {index} is {value.dtype}, which cannot be graded")
        if value.numel() == 0:
            raise UnsupportedError(
                f"output {index} is empty (shape {tuple(value.shape)})",
                hint="give the problem sizes that yield at least one element",
            )
    return tuple(values)


def disagreement(
    loaded: LoadedProblem, state: Mapping[str, torch.Tensor], inputs: Sequence[Any], seed: int = 0
) -> float:
    """The critical tolerance between the references; infinite where either is not finite."""
    with torch.no_grad():
        single = run_model(loaded, state, inputs, torch.float32, seed)
        exact = run_model(loaded, state, inputs, torch.float64, seed)
    if not all(bool(values.isfinite().all()) for values in (*single, *exact)):
        return float("inf")
    verdicts = [oracle.grade(s.numpy(), e.numpy()) for s, e in zip(single, exact, strict=True)]
    return oracle.merge(verdicts).critical_tolerance
