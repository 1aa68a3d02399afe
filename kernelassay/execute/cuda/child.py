"""The process that owns a CUDA context: it prepares inputs, runs candidates, and may die.

It is forked from a worker that has the problem traced and lowered and has not touched CUDA, so that
another takes its place within a second.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from kernelassay import cell
from kernelassay.cell import Cell
from kernelassay.errors import (
    NO_GPU,
    DeviceError,
    KernelassayError,
    ProblemError,
    ToolchainError,
)
from kernelassay.execute.bench import Candidate, ProblemBench
from kernelassay.execute.cuda.bench import CorruptedError, CudaInputBench
from kernelassay.execute.cuda.device import CudaDevice, Stretch, Survey
from kernelassay.execute.cuda.driver import FaultError
from kernelassay.execute.cuda.models import Models
from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.execute.cuda.sharing import Locks, kept_bytes, turn
from kernelassay.execute.messages import Beat, Measure, Prepared
from kernelassay.execute.outputs import without_output
from kernelassay.inputs import InputSpec
from kernelassay.timing import Timing

CHECK_EVERY = 16
_PR_SET_PDEATHSIG = 1
_REPEAT_SECONDS, _REPEAT_FIRST_SECONDS = 2e-3, 50e-3
"""Kernels up to here run twice if their output is wrong: on any input, and on the first one."""
_PROBE_WORDS = 4096


STRAY = "wrote over memory that is not its own, past the guard zones"
CORRUPTED = "corrupted"

Timed = tuple[Cell, float]
"""A candidate's cell and seconds."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Ask a child that stands by to have an input ready; there is no answer."""

    spec: InputSpec


@dataclass(frozen=True, slots=True)
class Ready:
    """A child's first word: it has a context on a device of ``total_bytes``."""

    total_bytes: int


@dataclass(frozen=True, slots=True)
class Release:
    """Tell a child that the input in use is done with; it answers with :class:`Released`."""


@dataclass(frozen=True, slots=True)
class Released:
    """What inputs not in use may not hold of the device's memory is given back."""


@dataclass(frozen=True, slots=True)
class TooLittle:
    """The memory did not do for a task, and all inputs are given back; ``what`` ran out."""

    what: str


@dataclass(frozen=True, slots=True)
class Expired:
    """A child's last word before it ends itself: a kernel ran too long.

    ``next`` tells that it was the first candidate of those whose cells are not sent yet.
    """

    next: bool


@dataclass(frozen=True, slots=True)
class Results:
    """Cells of the next candidates and their seconds, in order.

    ``ended`` says why the process ends, if it does: others may be left.
    """

    cells: tuple[Timed, ...]
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """What a child is asked: a request, of which ``pending`` candidates are left.

    ``fresh`` wants the facts and the cells of originals and controls first. After the first
    ``singly`` candidates memory is checked each time, later when that is cheap (see
    ``CudaInputBench.checked_after``), at the latest after :data:`CHECK_EVERY`. A
    ``heavy`` one has a part of the memory to itself; it takes its turn among such.
    """

    request: Measure
    pending: tuple[Candidate, ...]
    fresh: bool
    singly: int
    heavy: bool


def run_child(
    pipe: Connection, bench: ProblemBench, kernels: Path, options: CudaOptions, gpu: str
) -> None:
    """The main loop of a child; ends with its worker, or after a fault."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    try:
        device = open_device(kernels, options, gpu)
        pipe.send(Ready(device.total_bytes))
    except Exception as error:  # PyTorch and the driver's bindings raise whatever they like
        what = f"{type(error).__name__}: {error}"[:2000]
        pipe.send(DeviceError(f"the device cannot be used: {what}", hint=NO_GPU))
        return
    held: list[Timed] = []
    locks = Locks.of(gpu)
    inputs = Inputs(bench, device, options, expired=lambda: pipe.send(Expired(not held)))
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        held.clear()
        if isinstance(task, Prepare):
            inputs.prepare(task.spec)
        elif isinstance(task, Release):
            inputs.shed()
            pipe.send(Released())
        elif not _answer(pipe, inputs, task, held, locks):
            return


def open_device(kernels: Path, options: CudaOptions, gpu: str) -> CudaDevice:
    """Start CUDA on a device, set it to compute reproducibly, and see that it computes.

    Raises ``ToolchainError`` if it does not.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = options.tf32
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    device = CudaDevice(kernels)
    probe = torch.arange(_PROBE_WORDS, dtype=torch.int32, device="cuda")
    survey = Survey(device, [Stretch.of(probe)])
    survey.queue()
    _warm_up()
    torch.cuda.synchronize()
    if int(survey.read()[0, 3]) != _PROBE_WORDS - 1 or int(probe.sum()) != 8_386_560:
        raise ToolchainError("the device computes wrong sums", hint="look at `nvidia-smi`")
    return device


def _warm_up() -> None:
    """Load the libraries that references use; the first call of each takes a good while."""
    for dtype in (torch.float32, torch.float64):
        matrix = torch.ones(8, 8, dtype=dtype, device="cuda")
        torch.mm(matrix, matrix)
        torch.nn.functional.conv2d(matrix.view(1, 1, 8, 8), matrix.view(4, 1, 4, 4))


class Inputs:
    """The inputs that a child has prepared: the one in use, and others while memory lasts."""

    def __init__(
        self,
        bench: ProblemBench,
        device: CudaDevice,
        options: CudaOptions,
        expired: Callable[[], None],
    ) -> None:
        self._bench = bench
        self._models = Models()
        self._device = device
        self._options = options
        self._expired = expired
        self._kept: OrderedDict[InputSpec, CudaInputBench] = OrderedDict()
        self._most = kept_bytes(device.total_bytes, options.lanes)

    def has(self, spec: InputSpec) -> bool:
        """Whether an input is prepared."""
        return spec in self._kept

    def get(self, spec: InputSpec) -> CudaInputBench:
        """An input, prepared. Raises ``torch.OutOfMemoryError``."""
        if spec not in self._kept:
            self.shed()
            self._kept[spec] = self._prepare(spec)
        self._kept.move_to_end(spec)
        return self._kept[spec]

    def intact(self, spec: InputSpec) -> bool:
        """Whether an input that is prepared is as it was when another was last in use."""
        try:
            self._kept[spec].resume()
        except CorruptedError:
            return False
        return True

    def prepare(self, spec: InputSpec) -> None:
        """Have an input ready if that is possible; what goes wrong will show when it is used."""
        try:
            self.get(spec)
        except Exception:  # problem code raises whatever it likes
            self.forget()

    def forget(self) -> None:
        """Give all memory back."""
        while self._kept:
            self._kept.popitem()[1].close()
        torch.cuda.empty_cache()

    def shed(self) -> None:
        """Give back the inputs used longest ago, until the rest may be kept."""
        while self._kept and sum(b.taken for b in self._kept.values()) > self._most:
            self._kept.popitem(last=False)[1].close()
        torch.cuda.empty_cache()

    def _prepare(self, spec: InputSpec) -> CudaInputBench:
        made = CudaInputBench(
            self._bench, self._device, spec, self._options, self._models, self._expired
        )
        torch.cuda.empty_cache()  # what the references took is for others now
        return made


def _answer(pipe: Connection, inputs: Inputs, task: Task, held: list[Timed], locks: Locks) -> bool:
    """Work through a task; whether the process can go on afterwards. ``held`` has unsent cells."""
    beat = partial(pipe.send, Beat())
    kept = inputs.has(task.request.spec)
    if kept and not inputs.intact(task.request.spec):
        return False  # a kernel that ran on another input did it: nobody here is to blame
    runners = locks.heavy if task.heavy else locks.light
    full = ""
    try:
        start = time.perf_counter()
        prepared = inputs.get(task.request.spec)
        if task.fresh:
            facts = prepared.facts()
            seconds = 0.0 if kept else time.perf_counter() - start
            pipe.send(facts)
            if not facts.runs:
                return True
            with turn(runners, beat):
                pipe.send(_fixed(prepared, task.request, seconds))
        else:
            prepared.adopt(task.request.originals)
    except KernelassayError as error:
        pipe.send(error)
        return True
    except FaultError as fault:
        machine = fault.outcome == cell.INFRASTRUCTURE
        what = "the device fails" if machine else "a correct kernel faults"
        kind = DeviceError if machine else ProblemError
        pipe.send(kind(f"{what}: {fault.outcome} ({fault.detail})"))
        return False
    except CorruptedError:
        pipe.send(ProblemError("a correct kernel writes over memory that is not its own"))
        return False
    except torch.OutOfMemoryError as error:
        full = str(error).splitlines()[0]
    except Exception as error:  # problem code raises whatever it likes
        where = task.request.spec.id
        pipe.send(ProblemError(f"{type(error).__name__}: {error}"[:2000], where=where))
        return not isinstance(error, torch.AcceleratorError)
    if full:  # the error is gone here: it held all that was made before it
        inputs.forget()
        pipe.send(TooLittle(full))
        return True
    if not task.pending:
        return True
    with turn(runners, beat):
        return _candidates(pipe, prepared, task, held)


def _fixed(prepared: CudaInputBench, request: Measure, seconds: float) -> Prepared:
    """The cells of originals, which need not run if they were kept, and of controls, timed.

    ``seconds`` are those that it took to prepare the input.
    """
    known = set(prepared.kernel_seconds)
    start = time.perf_counter()
    cells = [*prepared.prepare(request.originals).values(), *prepared.controls()]
    fixed = time.perf_counter() - start
    ran = {name: took for name, took in prepared.kernel_seconds.items() if name not in known}
    return Prepared(cells, Timing(seconds, fixed, ran))


def _candidates(pipe: Connection, prepared: CudaInputBench, task: Task, held: list[Timed]) -> bool:
    """Send :class:`Results` until all candidates are done; whether the process can go on.

    Cells are sent once the memory they were graded on is known to be sound; the seconds of looking
    at it count for the last of them.
    """
    for number, candidate in enumerate(task.pending, 1):
        start = time.perf_counter()
        found, spoilt = _attempt(prepared, candidate, task.request)
        took = time.perf_counter() - start
        held.append((found, took))
        if spoilt and len(held) > 1:
            held.clear()  # they are measured again, one by one
        if spoilt:
            pipe.send(Results(tuple(held), ended=spoilt))
            return False
        alone = number <= task.singly or prepared.checked_after(took)
        if alone or len(held) == CHECK_EVERY or number == len(task.pending):
            try:
                prepared.require_sound()
            except CorruptedError:
                stray = without_output(candidate.id, task.request.spec.id, cell.CRASH, STRAY)
                took = time.perf_counter() - start
                pipe.send(Results(((stray, took),) if len(held) == 1 else (), ended=CORRUPTED))
                return False
            held[-1] = found, time.perf_counter() - start
            pipe.send(Results(tuple(held)))
            held.clear()
    return True


def _attempt(prepared: CudaInputBench, candidate: Candidate, request: Measure) -> tuple[Cell, str]:
    """A candidate's cell, and how the process is spoilt by it, if it is."""

    def lost(outcome: str, detail: str) -> Cell:
        return without_output(candidate.id, request.spec.id, outcome, detail[:500])

    try:
        return _run(prepared, candidate, request), ""
    except KernelassayError as error:
        return lost(cell.INFRASTRUCTURE, str(error)), ""
    except FaultError as fault:
        return lost(fault.outcome, fault.detail), fault.outcome
    except CorruptedError:
        return lost(cell.CRASH, STRAY), CORRUPTED
    except torch.OutOfMemoryError as error:
        return lost(cell.INFRASTRUCTURE, str(error)), cell.OUT_OF_MEMORY
    except RuntimeError as error:  # PyTorch, where a value downstream is not possible
        return lost(cell.CRASH, f"downstream: {error}"), cell.CRASH


def _run(prepared: CudaInputBench, candidate: Candidate, request: Measure) -> Cell:
    found = prepared.run(candidate)
    wrong = found.outcome == cell.OK and found.infected
    longest = _REPEAT_FIRST_SECONDS if request.check_order else _REPEAT_SECONDS
    if wrong and prepared.seconds < longest:
        finding = prepared.steady(candidate, found)
        if finding is not None:
            found = replace(found, findings=(*found.findings, finding))
    return found
