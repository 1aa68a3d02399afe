"""Running launch plans on the CPU, with every access of a kernel checked.

A finding never ends a run; the kernel goes on under stated semantics:

- Bytes outside a buffer, up to 1 MiB around it, read as the pattern ``0x3F003F00`` (0.501 in fp32,
  1.75 in fp16, 0.5 in bf16) and writes to them are lost. Farther out is a ``crash``. Shared arrays
  likewise, 2 MiB around.
- Scratch and shared memory hold that pattern until written, shared memory anew for each block.
- Races go on in the order of threads that was asked for; a diverged barrier is released when every
  thread waits at one or has returned.
- A warp operation whose mask names a lane that has returned goes on without it; reading from it
  gives the reader's own value.
- An integer division by zero gives all-ones and the dividend as remainder.

Fuel is one unit per loop iteration and per thread started. Without contraction, on a fixed order, two
runs give the same bytes and findings.

Known limits: overruns of a thread's own local arrays are not seen; ``goto`` loops end only by
the wall-clock backstop; see ``shim/shim.h`` for the arithmetic that differs from a GPU's.
"""

from __future__ import annotations

import ctypes
import struct
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kernelassay.errors import ToolchainError, UsageError
from kernelassay.execute.cpu.build import Image
from kernelassay.execute.cpu.geometry import launch_error
from kernelassay.kernel import (
    Finding,
    Launch,
    LaunchPlan,
    Memset,
    PointerArgument,
    RunResult,
    Scalar,
    Scratch,
)

Role = Literal["operand", "output", "scratch"]
_ROLES: dict[str, int] = {"operand": 0, "output": 1, "scratch": 2}

# Both orders are the contract with runtime/abi.h.
OUTCOMES = ("ok", "crash", "timeout", "launch-failure")
FINDINGS = (
    "oob-global-read",
    "oob-global-write",
    "oob-shared-read",
    "oob-shared-write",
    "race-shared",
    "race-global",
    "uninitialised-read",
    "barrier-divergence",
    "warp-divergence",
    "misaligned",
    "input-write",
)
_RACES = frozenset({"race-shared", "race-global"})

PATTERN = 0x3F003F00
SLACK_BYTES = 1 << 20
_MAX_SCRATCH_BYTES = 4 << 30
_OPEN_LIBRARIES = 64
_POOLED_SCRATCH = 32
_U64 = (1 << 64) - 1

_LAUNCH = struct.Struct("<QQ6IQQ")
_MEMSET = struct.Struct("<QQQQ24x")
_INTEGER = struct.Struct("<qQ")
_REAL = struct.Struct("<qd")


class _Index3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32))


class _Place(ctypes.Structure):
    _fields_ = (
        ("step", ctypes.c_uint32),
        ("block", _Index3),
        ("thread", _Index3),
        ("region", ctypes.c_int32),
        ("other_thread", ctypes.c_int32),
        ("size", ctypes.c_uint32),
        ("offset", ctypes.c_int64),
        ("line", ctypes.c_uint64),
        ("array", ctypes.c_char * 32),
    )


class _Result(ctypes.Structure):
    _fields_ = (
        ("outcome", ctypes.c_uint32),
        ("in_kernel", ctypes.c_uint32),
        ("fuel_used", ctypes.c_int64),
        ("counts", ctypes.c_uint64 * len(FINDINGS)),
        ("first", _Place * len(FINDINGS)),
        ("fault", _Place),
        ("reason", ctypes.c_char * 160),
    )


@dataclass(frozen=True, slots=True)
class _Loaded:
    """An open library: its handle, its address range, and its kernels as symbol -> (address, arity)."""

    handle: int
    span: Any
    kernels: dict[str, tuple[int, int]]


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
        self.array: npt.NDArray[np.uint8] = np.frombuffer(storage, dtype=np.uint8)

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
        try:
            # Global, because images find the runtime's functions by name.
            self._library = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ToolchainError(
                f"the CPU runtime does not load: {error}", where=str(runtime)
            ) from None
        _declare(self._library)
        if not self._library.ka_start():
            raise ToolchainError(
                "the system refuses the address space of the CPU executor (4 TiB, unbacked)",
                hint="lift the limit on virtual memory (ulimit -v unlimited)",
            )
        self._result = _Result.from_address(self._library.ka_result())
        self._backstop_ms = max(1, int(backstop_s * 1000))
        self._open: OrderedDict[Path, _Loaded] = OrderedDict()
        self._pool: dict[int, list[Buffer]] = {}
        self._pooled = 0

    def buffer(self, name: str, nbytes: int, *, role: Role, right_aligned: bool = False) -> Buffer:
        """``nbytes`` of zeroed memory; its end, if ``right_aligned``, 16-byte aligned at a page's.

        Bytes of an ``operand`` count as initialised, those of the other roles as uninitialised
        when a run starts. Raises ``ToolchainError`` when memory or windows (256) run out.
        """
        window = self._library.ka_map(nbytes, _ROLES[role], int(right_aligned))
        if window < 0:
            raise ToolchainError(
                f"no memory for the {role} buffer {name!r} of {nbytes} bytes",
                hint="release buffers, or test with smaller inputs",
            )
        return Buffer(self, name, nbytes, role, window)

    def run(
        self,
        image: Image,
        plan: LaunchPlan,
        buffers: Mapping[str, Buffer],
        *,
        fuel: int,
        order: str = "forward",
    ) -> RunResult:
        """Run ``plan`` with ``image``'s kernels on ``buffers`` (by their names in the plan).

        ``order`` is ``forward``, ``reverse`` or ``seeded:<integer>``: the order in which blocks,
        and the threads of a block, take turns. Operand buffers that were written are listed in the
        result; restoring them is the caller's part. Raises ``UsageError`` for an unknown order.
        """
        kind, seed = _order(order)
        loaded = self._load(image)
        with self._scratch(plan) as scratch:
            if isinstance(scratch, str):
                return RunResult("launch-failure", scratch, (), 0, ())
            named = {**buffers, **scratch}
            packed, count, error = _pack(plan, image, loaded, named)
            noteworthy = self._library.ka_run(
                packed, count, fuel, kind, seed, loaded.span, self._backstop_ms
            )
            if not noteworthy and error is None:
                return RunResult("ok", "", (), self._library.ka_fuel_used(), ())
            return self._read(plan, named, error)

    def _read(self, plan: LaunchPlan, named: Mapping[str, Buffer], error: str | None) -> RunResult:
        result = self._result
        windows = {buffer.window: name for name, buffer in named.items()}
        findings = tuple(
            Finding(kind, int(count), _place(plan, result.first[index], windows, kind in _RACES))
            for index, (kind, count) in enumerate(zip(FINDINGS, result.counts, strict=True))
            if count
        )
        outcome = OUTCOMES[result.outcome]
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

    def _load(self, image: Image) -> _Loaded:
        loaded = self._open.get(image.library)
        if loaded is None:
            loaded = self._open_library(image.library)
            self._open[image.library] = loaded
            while len(self._open) > _OPEN_LIBRARIES:
                _, oldest = self._open.popitem(last=False)
                self._library.ka_close(oldest.handle)
        else:
            self._open.move_to_end(image.library)
        for kernel in image.kernels:
            symbol = f"{image.tag}_{kernel}"
            if symbol not in loaded.kernels:
                address = self._library.ka_symbol(loaded.handle, symbol.encode())
                if not address:
                    raise ToolchainError(
                        f"the image lacks {symbol}",
                        where=str(image.library),
                        hint="delete the image cache; it is built again",
                    )
                arity = ctypes.c_int32.from_address(address + 8).value
                loaded.kernels[symbol] = (address, arity)
        return loaded

    def _open_library(self, path: Path) -> _Loaded:
        error = ctypes.create_string_buffer(400)
        handle = self._library.ka_open(str(path).encode(), error, len(error))
        span = (ctypes.c_uint64 * 2)()
        if not handle or not self._library.ka_range(handle, span):
            raise ToolchainError(
                f"the image does not load: {error.value.decode(errors='replace')}",
                where=str(path),
                hint="delete the image cache; it is built again",
            )
        return _Loaded(handle, span, {})


def _declare(library: ctypes.CDLL) -> None:
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    u32, u64, i64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64
    signatures: dict[str, tuple[Any, Sequence[Any]]] = {
        "ka_start": (ctypes.c_int, ()),
        "ka_open": (pointer, (text, text, ctypes.c_size_t)),
        "ka_close": (None, (pointer,)),
        "ka_symbol": (pointer, (pointer, text)),
        "ka_range": (ctypes.c_int, (pointer, pointer)),
        "ka_map": (ctypes.c_int, (u64, ctypes.c_int, ctypes.c_int)),
        "ka_unmap": (None, (ctypes.c_int,)),
        "ka_address": (u64, (ctypes.c_int,)),
        "ka_written": (ctypes.c_int, (ctypes.c_int,)),
        "ka_result": (pointer, ()),
        "ka_run": (ctypes.c_int, (text, u32, i64, u32, u64, pointer, u32)),
        "ka_fuel_used": (i64, ()),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments


def _order(order: str) -> tuple[int, int]:
    if order == "forward":
        return 0, 0
    if order == "reverse":
        return 1, 0
    kind, _, seed = order.partition(":")
    if kind == "seeded" and seed.isdecimal():
        return 2, int(seed) & _U64
    raise UsageError(
        f"unknown thread order {order!r}", hint="forward, reverse, or seeded:<integer>"
    )


def _pack(
    plan: LaunchPlan, image: Image, loaded: _Loaded, buffers: Mapping[str, Buffer]
) -> tuple[bytes, int, str | None]:
    """The plan as runtime/abi.h has it, up to the first step that cannot be launched, and why."""
    parts: list[bytes] = []
    for count, step in enumerate(plan.steps):
        if isinstance(step, Memset):
            target = _address(step.buffer, buffers)
            parts.append(_MEMSET.pack(1, target, step.value & 0xFF, step.nbytes & _U64))
            continue
        entry = loaded.kernels.get(f"{image.tag}_{step.kernel}")
        if entry is None:
            return b"".join(parts), count, f"there is no kernel {step.kernel!r}"
        address, arity = entry
        error = launch_error(step, arity)
        if error is not None:
            return b"".join(parts), count, error
        parts.append(_LAUNCH.pack(0, address, *step.grid, *step.block, step.shared_bytes, arity))
        parts.extend(_slot(argument, buffers) for argument in step.arguments)
    return b"".join(parts), len(plan.steps), None


def _slot(argument: PointerArgument | Scalar, buffers: Mapping[str, Buffer]) -> bytes:
    if isinstance(argument, PointerArgument):
        return _INTEGER.pack(2, _address(argument, buffers))
    if isinstance(argument, float):
        return _REAL.pack(1, argument)
    return _INTEGER.pack(0, int(argument) & _U64)


def _address(pointer: PointerArgument, buffers: Mapping[str, Buffer]) -> int:
    return (buffers[pointer.buffer].address + pointer.byte_offset) & _U64


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
