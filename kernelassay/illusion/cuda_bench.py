"""CUDA kernel files on arrays: compiled once, run by either executor in a process of its own.

A text is a file as ``kernelassay run --kernel`` takes it, whose header states the shape of its one
output. The executors are those of mutants, and so are findings: the CPU executor checks every
access, the CUDA one looks at guard zones and inputs after each run. A text that is also meant for
float16 says so by ``#ifdef FLOAT16``: for float16 inputs that macro is defined. Kernels take
contiguous arrays, so inputs of other strides are copied first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from kernelassay import cell
from kernelassay.errors import (
    DeviceError,
    KernelassayError,
    ToolchainError,
    UsageError,
    unknown_name,
)
from kernelassay.execute.execution import RAISED, Execution
from kernelassay.execute.supervision import signal_name
from kernelassay.execute.toolbox import AnyImage, CpuToolbox
from kernelassay.execute.worker import context, end
from kernelassay.kernel import BuildFailure
from kernelassay.session import user_cache
from kernelassay.user.kernel_file import KernelFile, kernel_of

if TYPE_CHECKING:
    from kernelassay.execute.cuda.toolbox import CudaToolbox

Device = Literal["cpu", "cuda"]
DEVICES: tuple[Device, ...] = ("cpu", "cuda")

START_SECONDS = 120.0
RUN_SECONDS = 90.0
"""More than the devices' own limits on a run: only a process that is stuck outlasts it."""

_FLOAT16 = "#define FLOAT16 1\n"
_WHERE = "kernel.cu"


@dataclass(frozen=True, slots=True)
class Built:
    """A text for one dtype: what its header binds, and its device code."""

    kernel: KernelFile
    image: AnyImage


@dataclass(frozen=True, slots=True)
class Request:
    """What the process is asked: one run on contiguous arrays."""

    built: Built
    inputs: tuple[NDArray[Any], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What it answers. A ``spoilt`` process is of no use any more."""

    found: Execution | KernelassayError
    spoilt: bool = False


class CudaTwinBench:
    """See :class:`kernelassay.execute.execution.Bench`; ``device`` is ``"cpu"`` or ``"cuda"``.

    A run ends after ``seconds``, compilation not counted, if the device does not end it before: the
    CPU executor after a number of loop iterations, the CUDA one after 30 seconds. Raises
    ``ToolchainError`` if there is no compiler for it.
    """

    def __init__(self, device: Device, seconds: float = RUN_SECONDS) -> None:
        if device not in DEVICES:
            raise unknown_name("device", device, DEVICES)
        self._tools: CpuToolbox | CudaToolbox = _toolbox(device)
        self._built: dict[tuple[str, str], Built | BuildFailure] = {}
        self._seconds = seconds
        self._process: Any = None
        self._pipe: Connection | None = None

    def run(self, text: str, inputs: Sequence[NDArray[Any]]) -> Execution:
        """One run of a kernel file on arrays of one dtype, float32 or float16.

        A text that cannot be read, does not compile, or does not fit the inputs has ``raised``.
        Raises ``UsageError`` for other inputs, ``DeviceError`` if the device cannot be used.
        """
        dtypes = sorted({str(array.dtype) for array in inputs})
        if len(dtypes) != 1 or dtypes[0] not in ("float32", "float16"):
            raise UsageError(
                f"the inputs are {', '.join(dtypes) or 'none'}",
                where=_WHERE,
                hint="give arrays of one dtype, float32 or float16",
            )
        built = self._build(text, dtypes[0])
        if isinstance(built, BuildFailure):
            outcome = cell.INFRASTRUCTURE if built.transient else RAISED
            return Execution(outcome, built.log, None)
        return self._executed(Request(built, tuple(np.asarray(a, order="C") for a in inputs)))

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        end(process, pipe)

    def _build(self, text: str, dtype: str) -> Built | BuildFailure:
        """The text's image, or why there is none; kept, unless another time it may do."""
        known = self._built.get((text, dtype))
        if known is None:
            known = self._anew(text, dtype)
            if not (isinstance(known, BuildFailure) and known.transient):
                self._built[text, dtype] = known
        return known

    def _anew(self, text: str, dtype: str) -> Built | BuildFailure:
        try:
            kernel = kernel_of(_FLOAT16 + text if dtype == "float16" else text, _WHERE)
            image = self._tools.build({"": kernel.source})[""]
        except ToolchainError:
            raise
        except KernelassayError as error:
            return BuildFailure(str(error))
        if isinstance(image, BuildFailure):
            log = f"does not compile: {image.log[:1000]}"
            return BuildFailure(image.unsupported or log, transient=image.transient)
        return Built(kernel, image)

    # ---- the process ---------------------------------------------------------------------------

    def _executed(self, request: Request) -> Execution:
        """The process's answer; one that a kernel spoilt or ended is replaced at the next run."""
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send(request)
            answer = self._receive(self._seconds)
        except TimeoutError as error:
            self.close()
            return Execution(cell.TIMEOUT, str(error), None)
        except (EOFError, OSError):
            reason = self._reaped()
            # That comes from outside, and says nothing of the kernel.
            outcome = cell.INFRASTRUCTURE if reason == "signal SIGKILL" else cell.CRASH
            return Execution(outcome, f"{cell.ENDED}{reason}", None)
        if answer.spoilt:
            self.close()
        if isinstance(answer.found, KernelassayError):
            raise answer.found
        return answer.found

    def _start(self) -> None:
        self._pipe, theirs = context().Pipe()
        process = context().Process(target=run_bench, args=(theirs, self._tools), daemon=True)
        process.start()
        self._process = process
        theirs.close()
        try:
            ready = self._receive(START_SECONDS)
        except TimeoutError as error:
            self.close()
            raise DeviceError(f"the bench's process does not start: {error}") from None
        except (EOFError, OSError):
            raise DeviceError(f"the bench's process ended: {self._reaped()}") from None
        if isinstance(ready, KernelassayError):
            self.close()
            raise ready

    def _receive(self, seconds: float) -> Any:
        assert self._pipe is not None
        if not self._pipe.poll(seconds):
            raise TimeoutError(f"no answer within {seconds:g} s")
        return self._pipe.recv()

    def _reaped(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        self.close()
        if code is None:
            return "it stopped answering"
        return f"signal {signal_name(-code)}" if code < 0 else f"exit code {code}"


def _toolbox(device: Device) -> CpuToolbox | CudaToolbox:
    if device == "cpu":
        return CpuToolbox.at(user_cache())
    from kernelassay.execute.cuda.options import CudaOptions
    from kernelassay.execute.cuda.toolbox import CudaToolbox

    return CudaToolbox.at(user_cache(), CudaOptions())


def run_bench(*arguments: Any) -> None:
    """:func:`cuda_serving.serve`, which only the processes need to have imported."""
    from kernelassay.illusion.cuda_serving import serve

    serve(*arguments)
