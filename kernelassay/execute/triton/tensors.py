"""Tensors for Triton texts: inputs in their own memory, and allocations that hold a mark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from kernelassay import oracle
from kernelassay.execute.triton.arrays import output_of
from kernelassay.execute.triton.serving import Ran, several, wrong_output

UNWRITTEN = frozenset(
    {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty,
     torch.Tensor.new_empty_strided, torch.empty_permuted}
)  # fmt: skip
"""Functions that hand out memory that nobody has written."""


class Allocations(TorchFunctionMode):
    """Within, what a text allocates without a value holds the unwritten mark of its width.

    ``allocate`` makes a tensor in place of a function of torch, or returns ``None``.
    """

    def __init__(
        self, allocate: Callable[[Any, tuple[Any, ...], dict[str, Any]], Tensor | None]
    ) -> None:
        super().__init__()
        self._allocate = allocate

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        made = self._allocate(func, args, kwargs)
        return func(*args, **kwargs) if made is None else made


def marked(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """An allocation full of marks; ``None`` for any other function."""
    if func not in UNWRITTEN:
        return None
    made = func(*args, **kwargs)
    if isinstance(made, Tensor) and made.layout == torch.strided and made.device.type != "meta":
        poison(made)
    return made


def span(tensor: Tensor) -> int:
    """The elements of memory from a tensor's first element to its last."""
    if tensor.numel() == 0:
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((extent - 1) * stride for extent, stride in steps)


def poison(tensor: Tensor) -> None:
    """Fill a tensor's memory with the unwritten mark, as ``oracle.poison`` does an array's."""
    width = tensor.element_size()
    if tensor.numel() == 0 or tensor.dtype == torch.bool or tensor.requires_grad:
        return
    flat = tensor.as_strided((span(tensor),), (1,))
    if width == 1:
        flat.view(torch.uint8).fill_(oracle.POISON_WORD & 0xFF)
    elif width == 2:
        flat.view(torch.int16).fill_(oracle.POISON_HALF)
    else:
        flat.view(torch.int32).fill_(oracle.POISON_WORD)


def input_tensor(head: dict[str, Any], memory: bytearray) -> Tensor:
    """A tensor over ``memory``, which is its whole storage."""
    dtype = getattr(torch, head["dtype"])
    if not memory:
        return torch.empty(head["shape"], dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype).as_strided(head["shape"], head["strides"])


def output_tensor(found: Any, device: str) -> Ran:
    """A run that returned this, where the device has nothing against it."""
    if not isinstance(found, Tensor):
        return wrong_output(several(found, "tensor"))
    if found.layout != torch.strided or found.device.type != device:
        what = f"returns a tensor of {found.layout} on {found.device}, not one on {device}"
        return wrong_output(what)
    host = found.detach().cpu().resolve_conj().resolve_neg()
    try:
        return output_of(host.numpy())
    except TypeError:
        return wrong_output(f"returns a tensor of {found.dtype}, which no array has")
