"""Kernel texts in Python, run in a worker process that is replaced when it is lost."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import select
import shutil
import signal
import socket
import struct
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.lib import array_utils
from numpy.typing import NDArray

from kernelassay import cell
from kernelassay.errors import DeviceError, ToolchainError, UnsupportedError
from kernelassay.execute import wire
from kernelassay.execute.execution import RAISED, WRONG_OUTPUT, Execution
from kernelassay.execute.sandbox import OUTPUT_LIMIT
from kernelassay.execute.supervision import signal_name
from kernelassay.execute.triton.nursery import START_SECONDS, nursery
from kernelassay.execute.triton.options import Device, Options
from kernelassay.kernel import Finding

GRACE_SECONDS = 2.0
"""How much longer than its own limit a worker is waited for; it is then ended."""
OUTPUT_BYTES = 1 << 30
"""The largest output that is taken."""
_END_SECONDS = 10.0
_KEPT = 2000
_DETAIL = 2000
_OUTCOMES = frozenset({*cell.OUTCOMES, RAISED, WRONG_OUTPUT})


class _TooMuchError(Exception):
    """The text prints without end."""


class TritonBench:
    """Runs kernel texts (see :class:`kernelassay.illusion.op.Op`) in one worker process.

    A text is loaded once by a worker. Options are those of :class:`Options`, by name. Close it, or
    use it as a context manager: nothing that a text started is left then. It serves one thread at
    a time. Raises :class:`ToolchainError` on the first run if what the device needs is missing.
    """

    def __init__(self, device: Device, **options: Any) -> None:
        self.options = Options(device, **options)
        self._folder = ""
        self._requests: socket.socket | None = None
        self._control: socket.socket | None = None
        self._output = -1
        self._source: wire.Source | None = None
        self._number = 0
        self._printed = 0
        self._last = b""

    def __enter__(self) -> TritonBench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, text: str, inputs: Sequence[NDArray[Any]]) -> Execution:
        """One run of a text's function ``run`` on arrays, which arrive with their strides.

        Raises :class:`UnsupportedError` for an input or a dtype that cannot be handed over or
        computed with, :class:`DeviceError` if no worker starts.
        """
        held = [held_array(array, index) for index, array in enumerate(inputs)]
        if self._requests is None:
            self._start()
        self._number += 1
        self._printed = 0
        blob = text.encode(errors="surrogatepass")
        request = {
            "number": self._number,
            "text": len(blob),
            "inputs": [one.head(0) for one in held],
        }
        frame = wire.pack(request, [blob, *(one.data for one in held)])
        try:
            assert self._requests is not None
            wire.send(self._requests.fileno(), frame)
            return self._answer()
        except wire.SilentError:
            self._end()
            limit = f"{self.options.seconds:g} s, or was not compiled"
            detail = f"did not end within {limit} within {self.options.compile_seconds:g} s"
            return Execution(cell.TIMEOUT, detail, None)
        except wire.ClosedError:
            return self._died()
        except (wire.BrokenFrameError, KeyError, TypeError, ValueError, OverflowError) as error:
            self._end()
            return Execution(cell.CRASH, f"its process broke the protocol: {error}", None)
        except _TooMuchError:
            self._end()
            return Execution(cell.CRASH, f"printed more than {OUTPUT_LIMIT >> 20} MB", None)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """End the process, and remove its folder."""
        self._end()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""

    # ---- the process -----------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._folder:
            self._folder = tempfile.mkdtemp(prefix="kernelassay-texts-")
        ours, theirs = socket.socketpair()
        control, its_control = socket.socketpair()
        output, its_output = os.pipe()
        # Nothing is waited for without end: not for a process that does not read, either.
        timeout = struct.pack("ll", math.ceil(self.options.seconds + GRACE_SECONDS), 0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        self._requests, self._control, self._output = ours, control, output
        self._source = wire.Source(ours.fileno(), (output,), self._hears)
        self._last = b""
        their = theirs.fileno()
        try:
            nursery(self.options.device).fork(
                self.options, Path(self._folder), [their, their, its_output, its_control.fileno()]
            )
        except BaseException:
            self._end()
            raise
        finally:
            theirs.close()
            its_control.close()
            os.close(its_output)
        try:
            head = self._source.head(time.monotonic() + START_SECONDS)
        except (wire.SilentError, wire.ClosedError, wire.BrokenFrameError) as error:
            said = self._last.decode(errors="replace").strip()[-500:]
            self._end()
            what = f"a worker did not start: {type(error).__name__} {said}"
            raise DeviceError(what, where=self.options.device) from None
        if "failed" in head:
            self._end()
            raise ToolchainError(str(head["failed"]), where=self.options.device)

    def _end(self, patience: float = 0.0) -> int | None:
        """End the process, if it does not end by itself within ``patience`` seconds.

        Returns when nothing is left of it, with its exit code, if that can be told.
        """
        code = None
        if self._control is not None and patience:
            select.select([self._control], [], [], patience)
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
            self._control.settimeout(_END_SECONDS)
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                code = int(json.loads(self._control.recv(256))["code"])
            self._control.close()
            self._control = None
        if self._output >= 0:
            os.close(self._output)
            self._output = -1
        return code

    def _hears(self, data: bytes) -> None:
        self._printed += len(data)
        self._last = (self._last + data)[-_KEPT:]
        if self._printed > OUTPUT_LIMIT:
            raise _TooMuchError

    # ---- answers ---------------------------------------------------------------------------------

    def _answer(self) -> Execution:
        assert self._source is not None
        deadline = time.monotonic() + self.options.seconds + GRACE_SECONDS
        compiling = self.options.compile_seconds
        while "compiling" in (head := self._source.head(deadline)):
            start = time.monotonic()
            self._source.head(start + compiling)  # says that it is done
            took = time.monotonic() - start
            compiling -= took
            deadline += took
        if head["number"] != self._number:
            raise ValueError("it answers what it was not asked")
        if "unsupported" in head:
            raise UnsupportedError(
                str(head["unsupported"]), where=self.options.device, hint=str(head["hint"])
            )
        output = None
        if head["output"] is not None:
            output = self._array(head["output"], deadline)
        outcome = str(head["outcome"])
        if outcome not in _OUTCOMES or (output is None) != (outcome != cell.OK):
            raise ValueError(f"an outcome {outcome[:40]!r}")
        found = Execution(
            outcome,
            str(head["detail"])[:_DETAIL],
            output,
            int(head["unwritten"]),
            tuple(
                Finding(str(kind), int(count), str(detail)[:_DETAIL])
                for kind, count, detail in head["findings"]
            ),
            tuple(int(index) for index in head["changed"]),
        )
        if head["last"]:
            self._end()
        return found

    def _array(self, head: dict[str, Any], deadline: float) -> NDArray[Any]:
        assert self._source is not None
        dtype = np.dtype(str(head["dtype"]))
        if dtype.kind not in "biufc":
            raise ValueError(f"an output of {dtype}")
        shape = tuple(int(extent) for extent in head["shape"])
        nbytes = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or nbytes > OUTPUT_BYTES:
            raise ValueError(f"an output of {shape}")
        return np.frombuffer(bytearray(self._source.bytes(nbytes, deadline)), dtype).reshape(shape)

    def _died(self) -> Execution:
        code = self._end(_END_SECONDS)
        if code is None:
            how = "was lost"
        elif code < 0:
            how = f"was ended by {signal_name(-code)}"
        else:
            how = f"exited with {code}"
        last = self._last.decode(errors="replace").strip().rpartition("\n")[2][:300]
        said = f"; its last output was: {last}" if last else ""
        # Its own limits raise within it. SIGKILL comes from outside (a person, the system that has
        # no memory left), and says nothing of the text.
        outcome = cell.INFRASTRUCTURE if code == -signal.SIGKILL else cell.CRASH
        return Execution(outcome, f"{cell.ENDED}it {how}{said}", None)


def held_array(array: NDArray[Any], index: int) -> wire.Held:
    """An array's memory from its first to its last element, with its strides.

    Raises :class:`UnsupportedError` for strides that a tensor cannot have and dtypes that torch,
    numpy and the interpreter do not share.
    """
    where = f"input {index}"
    if array.dtype.kind not in "biuf" or array.dtype.name not in _DTYPES:
        raise UnsupportedError(
            f"an array of {array.dtype.name} cannot be handed to a kernel text",
            where=where,
            hint=f"use one of {', '.join(_DTYPES)}",
        )
    if array.size == 0:
        return wire.Held(array.dtype.name, array.shape, _dense(array.shape), b"")
    steps = [0 if n == 1 else s for n, s in zip(array.shape, array.strides, strict=True)]
    if any(step < 0 or step % array.itemsize for step in steps):
        raise UnsupportedError(
            f"an array with the strides {array.strides} (in bytes) has no tensor like it",
            where=where,
            hint="strides must be multiples of the element's size, and not negative; copy it",
        )
    dense = _dense(array.shape)
    # The stride of a dimension of one element means nothing: numpy may hold anything there.
    strides = tuple(
        s // array.itemsize if n > 1 else d
        for n, s, d in zip(array.shape, steps, dense, strict=True)
    )
    low, high = array_utils.byte_bounds(array)
    return wire.Held(array.dtype.name, array.shape, strides, ctypes.string_at(low, high - low))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
    return tuple(strides)


_DTYPES = (
    *("float16", "float32", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)
