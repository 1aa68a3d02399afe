"""Addresses that a launch may touch under the interpreter, and what happens at all others.

The semantics are those of :mod:`kernelassay.execute.triton.interpreter`.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernelassay import cell
from kernelassay.execute.triton.options import SLACK
from kernelassay.execute.triton.serving import StoppedError
from kernelassay.kernel import Finding

_ALIGNMENT = 256
READ, WRITE = "oob-global-read", "oob-global-write"


@dataclass(frozen=True, slots=True)
class Window:
    """A tensor's memory during a launch: ``nbytes`` at ``address``."""

    name: str
    address: int
    nbytes: int


class Memory:
    """The address space that launches see, one window for each storage.

    Nothing but windows is ever touched, so what lies between them takes no memory.
    """

    def __init__(self) -> None:
        self._space = mmap.mmap(-1, mmap.PAGESIZE)

    def take(self, storages: Sequence[tuple[str, Any]]) -> list[tuple[Window, Any]]:
        """Windows with the contents of storages, and storages over them."""
        offsets, end = [], SLACK
        for _, storage in storages:
            offsets.append(end)
            end += -(-storage.nbytes() // _ALIGNMENT) * _ALIGNMENT + 2 * SLACK
        if len(self._space) < end:
            self._space = mmap.mmap(-1, end)  # the old one goes when no tensor needs it
        taken = []
        for (name, storage), offset in zip(storages, offsets, strict=True):
            nbytes = storage.nbytes()
            if nbytes:
                flat = torch.frombuffer(self._space, dtype=torch.uint8, count=nbytes, offset=offset)
                ctypes.memmove(flat.data_ptr(), storage.data_ptr(), nbytes)
            else:
                flat = torch.empty(0, dtype=torch.uint8)
            taken.append((Window(name, flat.data_ptr(), nbytes), flat.untyped_storage()))
        return taken


class Checks:
    """Decides about addresses, by the windows of the launch that goes on.

    ``program`` tells which program of the grid runs.
    """

    def __init__(self, pattern: int, program: Callable[[], tuple[int, ...]]) -> None:
        self._program = program
        self._pattern = np.array([pattern], np.uint32).view(np.uint8)
        self._low = self._high = np.zeros(0, np.uint64)
        self._windows: list[Window] = []
        self._kernel = ""
        self._found: dict[str, Finding] = {}

    def reset(self) -> None:
        """Forget windows and findings."""
        self.launch("", [])
        self._found = {}

    def launch(self, kernel: str, windows: Sequence[Window]) -> None:
        """From here on these windows are what there is."""
        self._kernel = kernel
        self._windows = sorted((w for w in windows if w.nbytes), key=lambda w: w.address)
        self._low = np.array([w.address for w in self._windows], np.uint64)
        self._high = self._low + np.array([w.nbytes for w in self._windows], np.uint64)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found since :meth:`reset`."""
        return tuple(self._found.values())

    def outside(
        self, addresses: NDArray[np.uint64], active: NDArray[np.bool_], size: int, kind: str
    ) -> NDArray[np.bool_] | None:
        """The active lanes outside of every window, each of ``size`` bytes; ``None`` for none.

        Raises :class:`StoppedError` if one is too far out.
        """
        lanes = addresses[active]
        if not lanes.size:
            return None
        at = np.searchsorted(self._low, lanes, side="right") - 1
        wide = np.uint64(size)
        if self._windows:
            bad = (at < 0) | (lanes + wide > self._high[np.maximum(at, 0)])
        else:
            bad = np.ones(lanes.shape, bool)
        if not bad.any():
            return None
        self._judge(lanes[bad], size, kind)
        found = np.zeros(addresses.shape, bool)
        found[active] = bad
        return found

    def _judge(self, lanes: NDArray[np.uint64], size: int, kind: str) -> None:
        distance, nearest = self._distances(lanes, size)
        where = f"{self._kernel}, program {self._program()}"
        verb = "reads" if kind == READ else "writes"
        far = distance > SLACK
        if far.any():
            first = int(np.flatnonzero(far)[0])
            text = f"{where} {verb} {int(far.sum())} elements far outside of every tensor"
            raise StoppedError(
                cell.ILLEGAL_ADDRESS, f"{text}, first at {self._place(lanes, nearest, first)}"
            )
        if kind in self._found:
            before = self._found[kind]
            self._found[kind] = replace(before, count=before.count + lanes.size)
            return
        place = self._place(lanes, nearest, 0)
        detail = f"{where} {verb} {size} bytes at {place}"
        self._found[kind] = Finding(kind, int(lanes.size), detail)

    def _distances(
        self, lanes: NDArray[np.uint64], size: int
    ) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Bytes from each lane's element to the nearest window, and which that is."""
        if not self._windows:
            return np.full(lanes.shape, np.inf), np.zeros(lanes.shape, np.intp)
        start = lanes.astype(np.float64)[:, None]
        gaps = np.maximum(self._low.astype(np.float64) - start - size, 0.0)
        gaps = np.maximum(gaps, start - self._high.astype(np.float64))
        nearest = gaps.argmin(axis=1)
        return gaps[np.arange(lanes.size), nearest], nearest

    def _place(self, lanes: NDArray[np.uint64], nearest: NDArray[np.intp], index: int) -> str:
        if not self._windows:
            return f"{int(lanes[index]):#x}, and there is no tensor"
        window = self._windows[int(nearest[index])]
        offset = int(lanes[index]) - window.address
        return f"byte {offset} of {window.name}, which has {window.nbytes}"

    def pattern_at(self, addresses: NDArray[np.uint64], dtype: np.dtype[Any]) -> NDArray[Any]:
        """What memory outside of windows reads as."""
        size = 1 if dtype == np.bool_ else dtype.itemsize
        bytes_ = (addresses[:, None] + np.arange(size, dtype=np.uint64)) % np.uint64(4)
        raw = self._pattern[bytes_.astype(np.intp)]
        if dtype == np.bool_:
            return np.asarray(raw[:, 0] != 0)
        return np.ascontiguousarray(raw).view(dtype).reshape(-1)


class Guard:
    """Stands for the interpreter's own module of memory accesses."""

    def __init__(self, real: Any, checks: Checks) -> None:
        self._real = real
        self._checks = checks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def load(self, ptrs: Any, mask: Any, other: Any, dtype: Any) -> Any:
        """A load whose lanes outside give the pattern."""
        dtype = np.dtype(dtype)
        bad = self._outside(ptrs, mask, dtype.itemsize, READ)
        if bad is not None:
            other = np.array(np.broadcast_to(other, np.shape(ptrs)), dtype)
            other[bad] = self._checks.pattern_at(_addresses(ptrs)[bad], dtype)
            mask = _without(mask, bad)
        return self._real.load(ptrs, mask, other, dtype)

    def store(self, ptrs: Any, value: Any, mask: Any) -> Any:
        """A store whose lanes outside are lost."""
        bad = self._outside(ptrs, mask, np.asarray(value).dtype.itemsize, WRITE)
        return self._real.store(ptrs, value, mask if bad is None else _without(mask, bad))

    def atomic_rmw(self, op: Any, ptrs: Any, value: Any, mask: Any, order: Any) -> Any:
        """An atomic whose lanes outside are lost and give the pattern."""
        dtype = np.asarray(value).dtype
        bad = self._outside(ptrs, mask, dtype.itemsize, WRITE)
        if bad is None:
            return self._real.atomic_rmw(op, ptrs, value, mask, order)
        found = np.array(self._real.atomic_rmw(op, ptrs, value, _without(mask, bad), order))
        found[bad] = self._checks.pattern_at(_addresses(ptrs)[bad], dtype)
        return found

    def atomic_cas(self, ptrs: Any, expected: Any, value: Any, order: Any) -> Any:
        """Likewise; it has no mask, so that the lanes inside go alone."""
        dtype = np.asarray(value).dtype
        bad = self._outside(ptrs, None, dtype.itemsize, WRITE)
        if bad is None:
            return self._real.atomic_cas(ptrs, expected, value, order)
        shape, good = np.shape(ptrs), ~bad
        found = np.zeros(shape, dtype)
        found[bad] = self._checks.pattern_at(_addresses(ptrs)[bad], dtype)
        if good.any():
            inside = [np.broadcast_to(a, shape)[good] for a in (ptrs, expected, value)]
            found[good] = self._real.atomic_cas(*inside, order)
        return found

    def _outside(self, ptrs: Any, mask: Any, size: int, kind: str) -> NDArray[np.bool_] | None:
        addresses = _addresses(ptrs)
        active = np.broadcast_to(True if mask is None else np.asarray(mask, bool), addresses.shape)
        return self._checks.outside(addresses, active, size, kind)


def _addresses(ptrs: Any) -> NDArray[np.uint64]:
    return np.asarray(ptrs, np.uint64)


def _without(mask: Any, bad: NDArray[np.bool_]) -> NDArray[np.bool_]:
    kept = np.array(np.broadcast_to(True if mask is None else np.asarray(mask, bool), bad.shape))
    kept[bad] = False
    return kept
