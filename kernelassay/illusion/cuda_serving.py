"""The inside of a CUDA bench's process: arrays become the inputs of a problem of their own.

Its module computes nothing: a kernel file stands in for the whole forward, as under ``kernelassay
run --kernel``, and only the kernel's own output leaves the process.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection

import torch
from torch import Tensor, nn

from kernelassay import cell
from kernelassay.errors import DeviceError, KernelassayError, ToolchainError, UsageError
from kernelassay.execute.bench import ORIGINAL, Candidate, InputBench, ProblemBench
from kernelassay.execute.cpu.bench import CpuInputBench
from kernelassay.execute.cpu.device import CpuDevice
from kernelassay.execute.cuda.bench import CorruptedError, CudaInputBench
from kernelassay.execute.cuda.child import STRAY, open_device
from kernelassay.execute.cuda.driver import FaultError
from kernelassay.execute.cuda.models import Models
from kernelassay.execute.cuda.toolbox import CudaToolbox
from kernelassay.execute.execution import RAISED, Execution
from kernelassay.execute.serving import restrict
from kernelassay.execute.toolbox import CpuToolbox
from kernelassay.illusion.cuda_bench import Answer, Request
from kernelassay.inputs import InputSpec
from kernelassay.kernel import OPTIMISED
from kernelassay.problem import LoadedProblem, Problem
from kernelassay.user.header import stated_shape
from kernelassay.user.kernel_file import KernelFile

_SPEC = InputSpec("arrays", "given", 0)
_SPOILT: list[BaseException] = []
"""What ended a run on a device that is lost. It is kept, and with it the tensors of its frames: to
free them there ends the process before it has answered."""
_Open = Callable[[ProblemBench], InputBench]


def serve(pipe: Connection, tools: CpuToolbox | CudaToolbox) -> None:
    """The main loop: one answer a request, until a kernel spoils the device or the parent ends."""
    restrict()
    expired = Answer(Execution(cell.TIMEOUT, "a kernel ran too long", None), spoilt=True)
    try:
        opened = _device(tools, lambda: pipe.send(expired))
        pipe.send("ready")
    except KernelassayError as error:
        pipe.send(error)
        return
    spoilt = False
    while not spoilt:
        try:
            request = pipe.recv()
        except (EOFError, OSError):
            return
        answer = _answer(opened, request)
        pipe.send(answer)
        spoilt = answer.spoilt


def _device(tools: CpuToolbox | CudaToolbox, expired: Callable[[], None]) -> _Open:
    """Start this process's device. Raises ``ToolchainError`` or ``DeviceError`` without one."""
    if isinstance(tools, CpuToolbox):
        return partial(_on_cpu, CpuDevice(tools.runtime))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))  # CUDA's own mappings count
    try:
        device = open_device(tools.kernels, tools.options, tools.device)
    except KernelassayError:
        raise
    except Exception as error:  # PyTorch and the driver's bindings raise whatever they like
        what = f"{type(error).__name__}: {error}"[:2000]
        raise DeviceError(f"the device cannot be used: {what}") from None

    def opened(bench: ProblemBench) -> CudaInputBench:
        return CudaInputBench(bench, device, _SPEC, tools.options, Models(), expired)

    return opened


def _on_cpu(device: CpuDevice, bench: ProblemBench) -> CpuInputBench:
    return CpuInputBench(bench, device, _SPEC)


def _answer(opened: _Open, request: Request) -> Answer:
    def lost(outcome: str, detail: str, error: BaseException) -> Answer:
        _SPOILT.append(error)
        return Answer(Execution(outcome, detail[:500], None), spoilt=True)

    try:
        return Answer(_execution(opened, request))
    except (ToolchainError, DeviceError) as error:
        return Answer(error, spoilt=True)
    except KernelassayError as error:
        return Answer(Execution(RAISED, str(error), None))
    except FaultError as fault:
        return lost(fault.outcome, fault.detail, fault)
    except CorruptedError as error:
        return lost(cell.CRASH, STRAY, error)
    except RuntimeError as error:  # PyTorch, which has no memory for values or lost the device
        return lost(cell.INFRASTRUCTURE, str(error), error)


def _execution(opened: _Open, request: Request) -> Execution:
    built = request.built
    bench = _ArrayBench(built.kernel, [torch.from_numpy(array) for array in request.inputs])
    (call,) = bench.calls
    name = f"{ORIGINAL}/{call.id}/{OPTIMISED}"
    source = built.kernel.source
    candidate = Candidate(name, ORIGINAL, call.id, OPTIMISED, source, built.image)
    prepared = opened(bench)
    try:
        result, unwritten, outputs = prepared.attempt(candidate, _SPEC.order)
        arrays = [value.cpu().numpy() for value in outputs]
        if isinstance(prepared, CudaInputBench):
            prepared.require_sound()
    except KernelassayError:
        prepared.close()
        raise
    prepared.close()
    nodes = dict(call.operands)
    changed = sorted(bench.traced.inputs.index(nodes[p]) for p in result.written_inputs)
    return Execution(
        outcome=result.outcome,
        detail=result.detail,
        output=arrays[0] if arrays else None,
        unwritten=unwritten,
        findings=result.findings,
        changed=tuple(changed),
    )


class _ArrayBench(ProblemBench):
    """A kernel file on given tensors; its header tells the shape of the output.

    Raises ``UsageError`` where it does not, or does not fit the tensors.
    """

    def __init__(self, kernel: KernelFile, inputs: Sequence[Tensor]) -> None:
        if len(kernel.outputs) != 1 or not kernel.outputs[0].shape:
            raise UsageError(
                "the header does not state the shape of one output",
                where=kernel.path,
                hint="write `// kernelassay: y = out[x.shape]`, or out[a.shape[0], b.shape[1]]",
            )
        shapes = {f"arg{number}": tuple(value.shape) for number, value in enumerate(inputs)}
        (output,) = kernel.outputs
        self._shape = stated_shape(output.shape, shapes, f"{kernel.path}:{output.line}")
        self._inputs = inputs
        super().__init__(Problem(kernel.path, 0, "arrays", kernel.path, "", (), kernel=kernel))

    def loaded(self, overrides: tuple[tuple[str, int], ...]) -> LoadedProblem:
        """The module that gives an output of the stated shape."""
        model = partial(_Blank, self._shape)
        return LoadedProblem(self.problem, overrides, model, lambda: list(self._inputs), list)


class _Blank(nn.Module):
    """Zeros of a shape, in the dtype of the first input and on its device."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self._shape = shape

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0].new_zeros(self._shape)
