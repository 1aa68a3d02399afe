"""Triton texts on a GPU: tensors between guard zones, allocations that hold marks.

Inputs, and what a text allocates by ``torch.empty`` or ``torch.zeros`` and their kin, lie between
zones of :data:`SLACK` bytes full of a stated pattern: a kernel that reads past a buffer reads the
pattern; one that writes there damages it, which is a finding (``oob-global-write``, its count in
elements of the buffer). What lies farther is the device's own business. Reads are not seen.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernelassay import cell
from kernelassay.errors import NO_GPU, DeviceError
from kernelassay.execute.cpu.device import PATTERNS
from kernelassay.execute.triton.options import SLACK, Options
from kernelassay.execute.triton.serving import Ran, StoppedError, Timer, causes, said
from kernelassay.execute.triton.tensors import UNWRITTEN, Allocations, output_tensor, poison, span
from kernelassay.kernel import Finding

IN_PLACE_BYTES = 64 << 20
"""Allocations above this stay where PyTorch puts them, marked, but without zones."""
_ALIGNMENT = 256
_SPIN_SECONDS, _POLL_SECONDS = 2e-3, 2e-4

_ZEROED = frozenset({torch.zeros, torch.zeros_like, torch.Tensor.new_zeros})
_FAULTS = {
    "illegal memory access": cell.ILLEGAL_ADDRESS,
    "illegal address": cell.ILLEGAL_ADDRESS,
    "misaligned address": cell.MISALIGNED_ADDRESS,
    "launch timed out": cell.TIMEOUT,
    "unspecified launch failure": cell.CRASH,
    "device-side assert": cell.CRASH,
    "illegal instruction": cell.CRASH,
    "invalid program counter": cell.CRASH,
    "hardware stack error": cell.CRASH,
    "CUDA error": cell.CRASH,
    "Triton Error [CUDA]": cell.CRASH,
}
"""What messages of the driver say of a kernel; the context is lost after each."""
_REFUSALS = ("out of resource", "invalid configuration argument", "[CUDA]: invalid argument")


def fault(error: BaseException) -> Ran | None:
    """What an error, or one that led to it, says of a kernel on the device, if anything."""
    for cause in causes(error):
        text = said(cause)
        if isinstance(cause, torch.OutOfMemoryError) or "CUDA error: out of memory" in text:
            return Ran(cell.OUT_OF_MEMORY, text)
        if any(word in text for word in _REFUSALS):
            return Ran(cell.LAUNCH_FAILURE, text)
        for words, outcome in _FAULTS.items():
            if words in text and isinstance(cause, RuntimeError):
                return Ran(outcome, text.partition("\n")[0], lost=True)
    return None


@dataclass(frozen=True, slots=True)
class Zoned:
    """A buffer of ``nbytes`` between two zones; ``memory`` is all of it, in bytes."""

    name: str
    memory: Tensor
    nbytes: int
    itemsize: int

    @property
    def buffer(self) -> Tensor:
        """The bytes between the zones."""
        return self.memory[SLACK : SLACK + self.nbytes]

    def zones(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The part of ``memory`` before the buffer, and that behind it."""
        return memory[:SLACK], memory[SLACK + self.nbytes : self.memory.numel()]

    def damage(self, pattern: Tensor) -> Finding | None:
        """What became of the zones, which held the first bytes of ``pattern``."""
        wrong = self.memory != pattern[: self.memory.numel()]
        wrong[SLACK : SLACK + self.nbytes] = False
        places = wrong.nonzero().flatten() - SLACK
        if not places.numel():
            return None
        elements = places.div(self.itemsize, rounding_mode="floor").unique()
        first = int(elements[elements >= 0][0] if (elements >= 0).any() else elements[-1])
        detail = f"a zone changed at byte {first * self.itemsize} of {self.name}"
        return Finding("oob-global-write", elements.numel(), f"{detail}, which has {self.nbytes}")


class Zones:
    """All zoned memory of one run."""

    def __init__(self, pattern: int, device: str = "cuda") -> None:
        # Half a pattern: it is the same twice over.
        self._word = int(np.array([pattern & 0xFFFF], np.uint16).view(np.int16)[0])
        self._device = device
        self._pattern = self._full(2 * SLACK + IN_PLACE_BYTES)
        self._held: list[Zoned] = []
        self._inputs = 0
        self._given = torch.empty(0, dtype=torch.uint8)

    def inputs(self, heads: Sequence[dict[str, Any]], blobs: Sequence[bytes]) -> list[Tensor]:
        """Tensors of the same strides, each between zones."""
        self._held = []
        self._inputs = len(heads)
        given = torch.frombuffer(bytearray(b"".join(blobs)) or bytearray(1), dtype=torch.uint8)
        self._given = given[: sum(map(len, blobs))].to(self._device)
        made, start = [], 0
        for index, (head, blob) in enumerate(zip(heads, blobs, strict=True)):
            dtype = getattr(torch, head["dtype"])
            zoned = self._take(f"input {index}", len(blob), dtype.itemsize)
            zoned.buffer.copy_(self._given[start : start + len(blob)])
            start += len(blob)
            made.append(_tensor(zoned, dtype, head["shape"], head["strides"]))
        return made

    def allocate(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """A tensor between zones in place of what ``func`` gives; ``None`` if it allocates none."""
        if func not in UNWRITTEN and func not in _ZEROED:
            return None
        made = func(*args, **kwargs)
        if not isinstance(made, Tensor) or made.layout != torch.strided:
            return made
        length = span(made)
        if made.device.type == self._device and length and not made.requires_grad:
            nbytes = length * made.element_size()
            if nbytes <= IN_PLACE_BYTES:
                name = f"allocation {len(self._held) - self._inputs}"
                zoned = self._take(name, nbytes, made.element_size())
                made = _tensor(zoned, made.dtype, made.shape, made.stride())
            if func in _ZEROED:
                made.zero_()
        if func in UNWRITTEN and made.device.type != "meta":
            poison(made)
        return made

    def survey(self) -> tuple[tuple[Finding, ...], tuple[int, ...]]:
        """Findings in zones, and the positions of inputs that changed."""
        intact = self._given.new_ones(2, dtype=torch.bool)
        if self._held:
            zones = torch.cat([z for held in self._held for z in held.zones(held.memory)])
            whole = torch.cat([z for held in self._held for z in held.zones(self._pattern)])
            now = [held.buffer for held in self._held[: self._inputs]]
            same = (torch.cat(now) if now else self._given) == self._given
            intact = torch.stack([(zones == whole).all(), same.all()])
        undamaged, unchanged = intact.tolist()
        findings = [] if undamaged else [held.damage(self._pattern) for held in self._held]
        changed = () if unchanged else self._changed()
        return tuple(finding for finding in findings if finding is not None), changed

    def release(self) -> None:
        """Give the memory back."""
        self._held, self._inputs = [], 0
        self._given = torch.empty(0, dtype=torch.uint8)

    def _changed(self) -> tuple[int, ...]:
        sizes = [held.nbytes for held in self._held[: self._inputs]]
        before = self._given.split(sizes)
        return tuple(
            i for i, part in enumerate(before) if not torch.equal(part, self._held[i].buffer)
        )

    def _take(self, name: str, nbytes: int, itemsize: int) -> Zoned:
        # A large input has zones, too; the pattern must do for it.
        inner = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        if inner + 2 * SLACK > self._pattern.numel():
            self._pattern = self._full(inner + 2 * SLACK)
        self._held.append(Zoned(name, self._full(inner + 2 * SLACK), nbytes, itemsize))
        return self._held[-1]

    def _full(self, nbytes: int) -> Tensor:
        words = torch.full((nbytes // 2,), self._word, dtype=torch.int16, device=self._device)
        return words.view(torch.uint8)


def _tensor(zoned: Zoned, dtype: torch.dtype, shape: Any, strides: Any) -> Tensor:
    if dtype == torch.bool or math.prod(shape) == 0:
        flat = zoned.buffer.view(torch.bool) if zoned.nbytes else zoned.buffer.to(dtype)
        return flat.as_strided(shape, strides) if zoned.nbytes else flat.reshape(shape)
    return zoned.buffer.view(dtype).as_strided(shape, strides)


class Gpu:
    """Runs Triton texts on this process's GPU. Raises :class:`DeviceError` if there is none."""

    def __init__(self, options: Options, timer: Timer) -> None:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self._seconds = options.seconds
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        try:
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, options.device_bytes / total))
            _time_compiler(timer)
            if int(torch.arange(5, device="cuda").sum()) != 10:
                raise RuntimeError("it computes wrong sums")
        except Exception as error:  # PyTorch and Triton raise whatever they like
            what = f"{type(error).__name__}: {error}"[:2000]
            raise DeviceError(f"the GPU cannot be used: {what}", hint=NO_GPU) from None
        self._zones = Zones(PATTERNS[options.surroundings])

    @contextmanager
    def around(self) -> Iterator[None]:
        """Allocations lie between zones, and are marked."""
        with Allocations(self._zones.allocate):
            yield

    def inputs(self, heads: Sequence[dict[str, Any]], blobs: Sequence[bytes]) -> list[Any]:
        """Tensors of the same strides, on the device."""
        return list(self._zones.inputs(heads, blobs))

    def finish(self, found: Any) -> Ran:
        """The output, damaged zones, and which inputs changed."""
        _wait()
        ran = output_tensor(found, "cuda")
        findings, changed = self._zones.survey()
        self._zones.release()
        return replace(ran, findings=findings, changed=changed)

    def failed(self, error: BaseException) -> Ran | None:
        """What the device says of an error, or of a kernel that was started before it."""
        self._zones.release()
        if isinstance(error, StoppedError):
            return Ran(error.outcome, error.detail, lost=True)
        found = fault(error)
        if found is not None and found.lost:
            return found
        try:
            _wait(self._seconds)
            torch.cuda.empty_cache()
        except Exception as other:
            return fault(other) or Ran(cell.CRASH, said(other), lost=True)
        except StoppedError as other:
            return Ran(other.outcome, other.detail, lost=True)
        return found

    def findings(self) -> tuple[Finding, ...]:
        """None: zones of a run that failed are not looked at."""
        return ()


def _wait(seconds: float = math.inf) -> None:
    """Until the device has done all. A wait in the driver could not be interrupted."""
    done = torch.cuda.Event()
    done.record()
    start = time.monotonic()
    while not done.query():
        waited = time.monotonic() - start
        if waited > seconds:
            raise StoppedError(cell.TIMEOUT, f"a kernel did not end within {seconds:g} s")
        if waited > _SPIN_SECONDS:
            time.sleep(_POLL_SECONDS)
    torch.cuda.synchronize()


def _time_compiler(timer: Timer) -> None:
    """See that what Triton's compiler takes does not count as a text's own time."""
    import triton.compiler
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import driver

    driver.active.get_current_target()  # builds what the driver's side of Triton needs

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with timer.paused():
                return function(*args, **kwargs)

        return call

    triton.compiler.compile = timed(triton.compiler.compile)
    if hasattr(CompiledKernel, "_init_handles"):  # builds a launcher
        CompiledKernel._init_handles = timed(CompiledKernel._init_handles)
