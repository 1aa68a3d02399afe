"""Running launch plans on the CPU, with every access of a kernel checked.

A finding never ends a run; the kernel goes on under stated semantics:

- Bytes outside a buffer, up to 1 MiB around it, read as a pattern (:data:`PATTERNS`) and writes to
  them are lost (the thread itself may still see its value, in a register), unless the buffers are
  packed. Farther out is a ``crash``. Shared arrays likewise, 2 MiB around, in 32-bit addresses.
  So are elements outside a thread's own array.
- Scratch and shared memory hold that pattern until written, shared memory anew for each block.
- Races go on in the order of threads that was asked for; a diverged barrier is released when every
  thread waits at one or has returned.
- A warp operation whose mask names a lane that has returned goes on without it; reading from it
  gives the reader's own value.
- An integer division by zero gives all-ones and the dividend as remainder.

Fuel is one unit per loop iteration and per thread started. On one thread order, two runs give the
same bytes and the same findings.

Known limits: ``goto`` loops end only by the wall-clock backstop; see ``shim/shim.h`` for the
arithmetic that differs from a GPU's.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kernelassay.errors import ToolchainError, UsageError, unknown_name
from kernelassay.execute.cpu import layout
from kernelassay.execute.cpu.build import Image
from kernelassay.kernel import (
    Finding,
    Launch,
    LaunchPlan,
    RunResult,
    Scratch,
)

Role = Literal["operand", "output", "scratch", "updated"]
_ROLES: dict[str, int] = {"operand": 0, "output": 1, "scratch": 2, "updated": 3}

_RACES = frozenset({"race-shared", "race-global"})

PATTERNS = {"finite": 0x3F003F00, "nan": 0x7FC07FC0, "packed": 0x7FC07FC0}
"""What memory holds that nothing has written, by the name of the surroundings: 0.501 in fp32, 1.75
in fp16, 0.5 in bf16; or a NaN in each of the three. In ``packed`` surroundings the buffers moreover
lie in one allocation, as views of a flat tensor do, each at a multiple of 16 bytes: outputs, then
operands, then scratch. What is read or written outside of one is what lies there."""

_PACKING: dict[str, int] = {"output": 0, "updated": 0, "operand": 1, "scratch": 2}

_MAX_SCRATCH_BYTES = 4 << 30
_OPEN_LIBRARIES = 64
_RUNTIME: dict[str, ctypes.CDLL] = {}
_POOLED_SCRATCH = 32


@dataclass(frozen=True, slots=True)
class _Open:
    """An open library: handle, address range, and per image tag its kernels."""

    handle: int
    span: Any
    kernels: dict[str, dict[str, tuple[int, int]]]


class Buffer:
    """Device memory in its own guard window; made by :meth:`CpuDevice.buffer`.

    ``array`` is a uint8 view of the bytes, valid until :meth:`release`.
    """

    __slots__ = ("_device", "address", "array", "name", "nbytes", "role", "window")

    def __init__(self, device: CpuDevice, name: str, nbytes: int, role: Role, window: int) -> None:
        self._device = device
        self.name = name
        self.nbytes = nbytes
        self.role = role
        self.window = window
        self.address: int = device._library.ka_address(window)
        storage = (ctypes.c_uint8 * nbytes).from_address(self.address)
        self.array: npt.NDArray[np.uint8] = np.ctypeslib.as_array(storage)

    def release(self) -> None:
        """Give the memory back; views of it must not be used any more."""
        if self.window >= 0:
            self.array = np.empty(0, dtype=np.uint8)
            self._device._library.ka_unmap(self.window)
            self.window = -1


class CpuDevice:
    """The device of this process: there can be several objects, but they share one memory.

    Signal handlers are in place only while :meth:`run` runs, which must not be entered twice at a
    time. ``backstop_s`` bounds the wall time of one run, for what fuel does not see. Raises
    ``ToolchainError`` if the runtime does not load or the system refuses the address space.
    """

    def __init__(self, runtime: Path, *, backstop_s: float = 60.0) -> None:
        self._library = _loaded(runtime)
        layout.declare(self._library)
        if not self._library.ka_start():
            raise ToolchainError(
                "the system refuses the address space of the CPU executor (20 TiB, unbacked)",
                hint="lift the limit on virtual memory (ulimit -v unlimited)",
            )
        self._result = layout.Result.from_address(self._library.ka_result())
        self._backstop_ms = max(1, int(backstop_s * 1000))
        self._open: OrderedDict[Path, _Open] = OrderedDict()
        self._pool: dict[int, list[Buffer]] = {}
        self._pooled = 0

    def buffer(self, name: str, nbytes: int, *, role: Role, right_aligned: bool = False) -> Buffer:
        """``nbytes`` of zeroed memory; its end, if ``right_aligned``, 16-byte aligned at a page's.

        Bytes of an ``operand``, and of an output that is ``updated`` in place, count as initialised
        when a run starts, those of the other roles as uninitialised. Raises ``ToolchainError`` when
        memory or windows (256) run out.
        """
        window = self._library.ka_map(nbytes, _ROLES[role], int(right_aligned))
        if window < 0:
            raise ToolchainError(
                f"no memory for the {role} buffer {name!r} of {nbytes} bytes",
                hint="release buffers, or test with smaller inputs",
            )
        return Buffer(self, name, nbytes, role, window)

    def load(self, image: Image) -> None:
        """Load an image, which :meth:`run` does else; then a run's time is that of its kernels."""
        self._load(image)

    def run(
        self,
        image: Image,
        plan: LaunchPlan,
        buffers: Mapping[str, Buffer],
        *,
        fuel: int,
        order: str = "forward",
        surroundings: str = "finite",
    ) -> RunResult:
        """Run ``plan`` with ``image``'s kernels on ``buffers`` (by their names in the plan).

        ``order`` is ``forward``, ``reverse`` or ``seeded:<integer>``: the order in which blocks,
        and the threads of a block, take turns. ``surroundings`` names one of :data:`PATTERNS`.
        Operand buffers that were written are listed in the result; restoring them is the caller's
        part. Raises ``UsageError`` for an unknown order or unknown surroundings.
        """
        kind, seed = _order(order)
        if surroundings not in PATTERNS:
            raise unknown_name("surroundings", surroundings, PATTERNS)
        span, kernels = self._load(image)
        with self._scratch(plan) as scratch:
            if isinstance(scratch, str):
                return RunResult("launch-failure", scratch, (), 0, ())
            named = {**buffers, **scratch}
            addresses = {name: buffer.address for name, buffer in named.items()}
            packed, count, error = layout.pack_plan(plan, kernels, addresses)
            if surroundings == "packed":
                ring = sorted(named.values(), key=lambda buffer: _PACKING[buffer.role])
                windows = (ctypes.c_int32 * len(ring))(*(buffer.window for buffer in ring))
                self._library.ka_pack(windows, len(ring))
            noteworthy = self._library.ka_run(
                packed, count, fuel, kind, seed, PATTERNS[surroundings], span, self._backstop_ms
            )
            if not noteworthy and error is None:
                return RunResult("ok", "", (), self._library.ka_fuel_used(), ())
            return self._read(plan, named, error)

    def _read(self, plan: LaunchPlan, named: Mapping[str, Buffer], error: str | None) -> RunResult:
        result = self._result
        windows = {buffer.window: name for name, buffer in named.items()}
        findings = tuple(
            Finding(kind, int(count), _place(plan, result.first[index], windows, kind in _RACES))
            for index, (kind, count) in enumerate(zip(layout.FINDINGS, result.counts, strict=True))
            if count
        )
        outcome = layout.OUTCOMES[result.outcome]
        detail = result.reason.decode(errors="replace")
        if outcome != "ok" and result.in_kernel:
            detail += f" in {_place(plan, result.fault, windows, race=False)}"
        if outcome == "ok" and error is not None:
            outcome, detail = "launch-failure", error
        written = tuple(
            name
            for name, buffer in named.items()
            if buffer.role == "operand" and self._library.ka_written(buffer.window)
        )
        return RunResult(outcome, detail, findings, int(result.fuel_used), written)

    @contextmanager
    def _scratch(self, plan: LaunchPlan) -> Iterator[dict[str, Buffer] | str]:
        """The plan's scratch buffers out of the pool, or why there can be none."""
        taken: dict[str, Buffer] = {}
        try:
            for wanted in plan.scratch:
                if not 0 <= wanted.nbytes <= _MAX_SCRATCH_BYTES:
                    yield f"cudaMalloc of {wanted.nbytes} bytes"
                    return
                taken[wanted.name] = self._take(wanted)
            yield taken
        finally:
            for buffer in taken.values():
                self._pool.setdefault(buffer.nbytes, []).append(buffer)
                self._pooled += 1
            if self._pooled > _POOLED_SCRATCH:
                self._empty_pool()

    def close(self) -> None:
        """Give back the pooled scratch buffers, whose windows the process's next device needs."""
        self._empty_pool()

    def _take(self, wanted: Scratch) -> Buffer:
        pooled = self._pool.get(wanted.nbytes)
        if pooled:
            self._pooled -= 1
            return pooled.pop()
        return self.buffer(wanted.name, wanted.nbytes, role="scratch")

    def _empty_pool(self) -> None:
        for buffers in self._pool.values():
            for buffer in buffers:
                buffer.release()
        self._pool.clear()
        self._pooled = 0

    def _load(self, image: Image) -> tuple[Any, dict[str, tuple[int, int]]]:
        """The address range of the image's library, and its kernels: name -> (address, arity)."""
        library = self._open.get(image.library)
        if library is None:
            library = self._open_library(image.library)
            self._open[image.library] = library
            while len(self._open) > _OPEN_LIBRARIES:
                _, oldest = self._open.popitem(last=False)
                self._library.ka_close(oldest.handle)
        else:
            self._open.move_to_end(image.library)
        kernels = library.kernels.get(image.tag)
        if kernels is None:
            kernels = {name: self._kernel(library, image, name) for name in image.kernels}
            library.kernels[image.tag] = kernels
        return library.span, kernels

    def _kernel(self, library: _Open, image: Image, name: str) -> tuple[int, int]:
        address = self._library.ka_symbol(library.handle, f"{image.tag}_{name}".encode())
        if not address:
            raise ToolchainError(
                f"the image lacks kernel {name!r}",
                where=str(image.library),
                hint="delete the image cache; it is built again",
            )
        return address, ctypes.c_int32.from_address(address + 8).value

    def _open_library(self, path: Path) -> _Open:
        error = ctypes.create_string_buffer(400)
        handle = self._library.ka_open(str(path).encode(), error, len(error))
        span = (ctypes.c_uint64 * 2)()
        if not handle or not self._library.ka_range(handle, span):
            raise ToolchainError(
                f"the image does not load: {error.value.decode(errors='replace')}",
                where=str(path),
                hint="delete the image cache; it is built again",
            )
        return _Open(handle, span, {})


def _loaded(runtime: Path) -> ctypes.CDLL:
    """The runtime of this process: images find its functions by name, so there is but one.

    Its name tells its contents; the same from another cache is the same.
    """
    if _RUNTIME and runtime.name not in _RUNTIME:
        raise ToolchainError(
            f"this process has loaded another runtime ({next(iter(_RUNTIME))})",
            where=str(runtime),
            hint="use a process of its own for each runtime",
        )
    if not _RUNTIME:
        try:
            _RUNTIME[runtime.name] = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ToolchainError(
                f"the CPU runtime does not load: {error}", where=str(runtime)
            ) from None
    return _RUNTIME[runtime.name]


def _order(order: str) -> tuple[int, int]:
    if order == "forward":
        return 0, 0
    if order == "reverse":
        return 1, 0
    kind, _, seed = order.partition(":")
    if kind == "seeded" and seed.isdecimal():
        return 2, int(seed) & layout.U64
    raise UsageError(
        f"unknown thread order {order!r}", hint="forward, reverse, or seeded:<integer>"
    )


def _place(plan: LaunchPlan, place: Any, windows: Mapping[int, str], race: bool) -> str:
    step = plan.steps[place.step]
    if not isinstance(step, Launch):
        return f"cudaMemset of {step.buffer.buffer}"
    text = f"{step.kernel} block {_index(place.block)} thread {_index(place.thread)}"
    if place.array:
        text += f", shared array {place.array.decode()} byte {place.offset} size {place.size}"
    elif place.region >= 0:
        name = windows.get(place.region, "a foreign buffer")
        text += f", buffer {name} byte {place.offset} size {place.size}"
    if place.line:
        text += f", line {place.line}"
    if race:
        text += (
            ", other thread in another block"
            if place.other_thread < 0
            else f", other thread {place.other_thread} of the block"
        )
    return text


def _index(index: Any) -> str:
    return f"({index.x},{index.y},{index.z})"
