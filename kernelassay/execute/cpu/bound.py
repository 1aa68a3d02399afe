"""The calls of a problem on one input: arguments, buffers, and what depends on their outputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernelassay.execute.cpu.device import Buffer, CpuDevice, Role
from kernelassay.execute.splice import downstream
from kernelassay.kernel import Call, Scalar
from kernelassay.trace import Traced, meta

OPEN_WINDOWS = 128
"""How many buffers the calls of a bench hold at once: half of the device's windows."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A call on this input: scalar arguments, buffers, and what depends on its outputs.

    ``buffers`` and the views of ``outputs`` exist while the call is open (see :class:`BoundCalls`).
    """

    call: Call
    scalars: Mapping[str, Scalar]
    operands: dict[str, NDArray[Any]]
    buffers: dict[str, Buffer]
    outputs: dict[str, tuple[str, NDArray[Any]]]
    starts: dict[str, NDArray[Any]]
    downstream: tuple[str, ...]


class BoundCalls:
    """Binds calls when they are asked for, and gives their buffers back when windows run short."""

    def __init__(
        self,
        device: CpuDevice,
        calls: Mapping[str, Call],
        traced: Traced,
        values: Mapping[str, torch.Tensor],
        scalars: Callable[[Call], Mapping[str, Scalar]],
    ) -> None:
        self._device = device
        self._by_id = calls
        self._traced = traced
        self._values = values
        self._scalars = scalars
        self._bound: dict[str, Bound] = {}
        self._opened: OrderedDict[str, Bound] = OrderedDict()

    def close(self) -> None:
        """Give all buffers back."""
        while self._opened:
            self._shut()
        self._bound.clear()

    def bind(self, call_id: str) -> Bound:
        """The call on this input, with its buffers."""
        if call_id not in self._bound:
            self._bound[call_id] = self._bind_anew(self._by_id[call_id])
        return self._open(self._bound[call_id])

    def _bind_anew(self, call: Call) -> Bound:
        scalars = self._scalars(call)
        operands: dict[str, NDArray[Any]] = {}
        for parameter, name in call.operands:
            array = np.ascontiguousarray(self._values[name].detach().contiguous().numpy())
            operands[parameter] = array.reshape(-1).view(np.uint8)
        starts = {p: self._values[name].detach().contiguous().numpy() for p, name in call.starts}
        return Bound(call, scalars, operands, {}, {}, starts, downstream(call, self._traced))

    def _open(self, bound: Bound) -> Bound:
        """Give a call its buffers, if it has none; those used longest ago give way.

        A network has more calls than the device has windows.
        """
        call, device = bound.call, self._device
        if call.id in self._opened:
            self._opened.move_to_end(call.id)
            return bound
        needed = len(call.operands) + len(call.outputs)
        while self._opened and needed + self.windows() > OPEN_WINDOWS:
            self._shut()
        self._opened[call.id] = bound
        for parameter, array in bound.operands.items():
            buffer = device.buffer(parameter, array.nbytes, role="operand")
            buffer.array[:] = array
            bound.buffers[parameter] = buffer
        for parameter, name in call.outputs:
            value = self._values[name]
            role: Role = "updated" if parameter in bound.starts else "output"
            buffer = device.buffer(parameter, value.numel() * value.element_size(), role=role)
            dtype = meta(self._traced.nodes[name]).dtype
            view = buffer.array.view(np.dtype(dtype)).reshape(tuple(value.shape))
            bound.outputs[parameter] = (name, view)
            bound.buffers[parameter] = buffer
        return bound

    def windows(self) -> int:
        """The number of buffers that are held now."""
        return sum(len(bound.buffers) for bound in self._opened.values())

    def _shut(self) -> None:
        """Give back the buffers of the call that was used longest ago."""
        _, bound = self._opened.popitem(last=False)
        for buffer in bound.buffers.values():
            buffer.release()
        bound.buffers.clear()
        bound.outputs.clear()
