"""The binary interface to the runtime: the Python mirror of ``runtime/abi.h``."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from kernelassay.compile.values import NULL_POINTER
from kernelassay.errors import UsageError
from kernelassay.execute.cpu.geometry import launch_error
from kernelassay.kernel import LaunchPlan, Memset, PointerArgument, Scalar

# The orders of these two are part of the interface.
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
    "oob-local",
)
U64 = (1 << 64) - 1

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


class Result(ctypes.Structure):
    """What the runtime tells of its last run."""

    _fields_ = (
        ("outcome", ctypes.c_uint32),
        ("in_kernel", ctypes.c_uint32),
        ("fuel_used", ctypes.c_int64),
        ("counts", ctypes.c_uint64 * len(FINDINGS)),
        ("first", _Place * len(FINDINGS)),
        ("fault", _Place),
        ("reason", ctypes.c_char * 160),
    )


def declare(library: ctypes.CDLL) -> None:
    """Give the runtime's functions their types; ctypes would cut pointers to 32 bits."""
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
        "ka_pack": (None, (pointer, u32)),
        "ka_written": (ctypes.c_int, (ctypes.c_int,)),
        "ka_result": (pointer, ()),
        "ka_run": (ctypes.c_int, (text, u32, i64, u32, u64, u32, pointer, u32)),
        "ka_fuel_used": (i64, ()),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments


def pack_plan(
    plan: LaunchPlan,
    kernels: Mapping[str, tuple[int, int]],
    addresses: Mapping[str, int],
) -> tuple[bytes, int, str | None]:
    """The plan as runtime/abi.h has it, up to the first step that cannot be launched, and why."""
    parts: list[bytes] = []
    for count, step in enumerate(plan.steps):
        if isinstance(step, Memset):
            target = _address(step.buffer, addresses)
            parts.append(_MEMSET.pack(1, target, step.value & 0xFF, step.nbytes & U64))
            continue
        entry = kernels.get(step.kernel)
        if entry is None:
            return b"".join(parts), count, f"there is no kernel {step.kernel!r}"
        address, arity = entry
        error = launch_error(step, arity)
        if error is not None:
            return b"".join(parts), count, error
        parts.append(_LAUNCH.pack(0, address, *step.grid, *step.block, step.shared_bytes, arity))
        parts.extend(_slot(argument, addresses) for argument in step.arguments)
    return b"".join(parts), len(plan.steps), None


def _slot(argument: PointerArgument | Scalar, addresses: Mapping[str, int]) -> bytes:
    if isinstance(argument, PointerArgument):
        return _INTEGER.pack(2, _address(argument, addresses))
    if isinstance(argument, float):
        return _REAL.pack(1, argument)
    return _INTEGER.pack(0, int(argument) & U64)


def _address(pointer: PointerArgument, addresses: Mapping[str, int]) -> int:
    if pointer.buffer == NULL_POINTER.buffer:
        return pointer.byte_offset & U64
    address = addresses.get(pointer.buffer)
    if address is None:
        raise UsageError(
            f"the plan names buffer {pointer.buffer!r}, which was not handed over",
            hint=f"there are {', '.join(sorted(addresses)) or 'none'}",
        )
    return (address + pointer.byte_offset) & U64
