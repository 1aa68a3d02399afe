"""Device memory for kernels under test, surveyed after each run.

A call's operands and outputs lie in one allocation with guard zones of :data:`GUARD_BYTES` between
them, full of a stated pattern: a kernel that reads past a buffer reads the pattern, one that writes
there damages it, which is a finding. In ``packed`` surroundings the buffers lie side by side, as
views of one flat tensor do. Operands above :data:`IN_PLACE_BYTES` stay where PyTorch put them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelassay import oracle
from kernelassay.execute.cpu.device import PATTERNS
from kernelassay.execute.cuda.driver import Driver, Function

GUARD_BYTES = 1 << 20
IN_PLACE_BYTES = 64 << 20
ALIGNMENT = 256
PACKED_ALIGNMENT = 16
SHARED_BYTES = 227 << 10

_SEGMENT = np.dtype([("words", "<u8"), ("count", "<u8"), ("width", "<u4"), ("expected", "<u4")])
_THREADS = 256
_MOST_BLOCKS = 1056
_WORDS_A_THREAD = 8


@dataclass(frozen=True, slots=True)
class Stretch:
    """Memory to survey: an address, a number of 32-bit words; see ``Segment`` in kernels.cu."""

    address: int
    words: int
    width: int = 0
    expected: int = 0

    @classmethod
    def of(cls, tensor: Tensor, width: int = 0) -> Stretch:
        """All bytes of a dense tensor; a rest of fewer than four is left out."""
        nbytes = tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.itemsize
        return cls(tensor.data_ptr(), min(nbytes, span_bytes(tensor)) // 4, width)


def span_bytes(tensor: Tensor) -> int:
    """The bytes from a tensor's first element to its last."""
    if tensor.numel() == 0:
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((extent - 1) * stride for extent, stride in steps)) * tensor.itemsize


class Survey:
    """A list of stretches that are looked at together, in one launch."""

    def __init__(self, device: CudaDevice, stretches: Sequence[Stretch]) -> None:
        rows = [(s.address, s.words, s.width, s.expected) for s in stretches]
        table = np.array(rows, dtype=_SEGMENT).view(np.uint8)
        self.count = len(rows)
        self.words = sum(s.words for s in stretches)
        self._device = device
        self._longest = max((s.words for s in stretches), default=0)
        self._rows = torch.from_numpy(table.copy()).pin_memory()
        self._table = torch.empty_like(self._rows, device="cuda")
        self._found = torch.zeros(max(1, self.count) * 4, dtype=torch.int64, device="cuda")
        self._host = torch.zeros_like(self._found, device="cpu", pin_memory=True)

    def queue(self) -> None:
        """Look at the memory as it is when everything queued before is done."""
        self._found.zero_()
        if self.count:
            # Anew each time: what a kernel wrote far away may be this very table.
            self._table.copy_(self._rows, non_blocking=True)
            blocks = -(-self._longest // (_THREADS * _WORDS_A_THREAD))
            grid = (max(1, min(_MOST_BLOCKS, blocks)), self.count, 1)
            values = (self._table.data_ptr(), self._found.data_ptr())
            self._device.start(self._device.survey, grid, values)
        self._host.copy_(self._found, non_blocking=True)

    def read(self) -> NDArray[np.uint64]:
        """What was found, once the stream has been waited for: [stretches, 4]."""
        found = self._host.numpy().view(np.uint64).reshape(-1, 4)[: self.count]
        return np.asarray(found.copy())


class CudaDevice:
    """This process's device, with the kernels that survey and grade."""

    def __init__(self, kernels: Path) -> None:
        self.driver = Driver()
        pointer, number, word = ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_uint

        def own(name: str, *types: type) -> Function:
            return self.driver.own(kernels, name, types)

        self.survey = own("ka_survey", pointer, pointer)
        self._largest = own("ka_largest", pointer, number, pointer)
        self._scrub = own("ka_scrub", word, word)
        grading = (pointer, pointer, pointer, number, pointer)
        self._grade = {
            torch.float32: own("ka_grade_float", *grading),
            torch.float64: own("ka_grade_double", *grading),
        }
        facts = torch.cuda.get_device_properties(0)
        self._processors = facts.multi_processor_count
        self.total_bytes = int(facts.total_memory)

    def start(
        self, function: Function, grid: tuple[int, int, int], values: tuple[object, ...]
    ) -> None:
        """Queue one of our own kernels."""
        self.driver.launch(function, grid, (_THREADS, 1, 1), 0, values)

    def scrub(self, pattern: int) -> None:
        """Fill shared memory: it keeps what the kernel before left there."""
        grid, block = (self._processors, 1, 1), (1024, 1, 1)
        values = (pattern, SHARED_BYTES // 4)
        self.driver.launch(self._scrub, grid, block, SHARED_BYTES, values)

    def largest(self, value: Tensor) -> float:
        """The largest finite magnitude of a dense float32 tensor."""
        found = torch.zeros(1, dtype=torch.int64, device=value.device)
        count = span_bytes(value) // 4
        if count:
            self.start(self._largest, _grid(count), (value.data_ptr(), count, found.data_ptr()))
        bits = np.array([int(found.item())], dtype=np.uint32)
        return float(bits.view(np.float32)[0])

    def grade(
        self, out: Tensor, reference: Tensor, exact: Tensor
    ) -> tuple[oracle.Verdict, oracle.Verdict]:
        """``oracle.grade`` of an output against both references, on the device. Contiguous."""
        kind = torch.float32 if out.dtype == torch.float32 else torch.float64
        if torch.float16 in (out.dtype, reference.dtype):  # steps of a half are counted elsewhere
            array = out.cpu().numpy()
            single, double = reference.cpu().numpy(), exact.cpu().numpy()
            return oracle.grade(array, single), oracle.grade(array, double)
        a, b, c = out.to(kind), reference.to(kind), exact.to(torch.float64)
        found = torch.zeros(32, dtype=torch.int64, device=out.device)
        values = (a.data_ptr(), b.data_ptr(), c.data_ptr(), a.numel(), found.data_ptr())
        self.start(self._grade[kind], _grid(a.numel()), values)
        numbers = found.cpu().numpy().view(np.uint64)
        return verdict_of(numbers, 0, a.numel()), verdict_of(numbers, 15, a.numel())


def _grid(count: int) -> tuple[int, int, int]:
    return (max(1, min(_MOST_BLOCKS, -(-count // (_THREADS * _WORDS_A_THREAD)))), 1, 1)


def verdict_of(numbers: NDArray[np.uint64], start: int, count: int) -> oracle.Verdict:
    """The verdict in what ``grade`` of kernels.cu found; ``start`` is 0 or 15, by the reference."""
    floats = numbers[start : start + 4].view(np.float64)
    rest = [int(n) for n in numbers[start + 4 : start + 15]]
    return oracle.Verdict(
        count=count,
        critical_tolerance=float(floats[0]),
        critical_max_rule=float(floats[1]),
        max_abs=float(floats[2]),
        max_rel=float(floats[3]),
        max_ulp=float(rest[0]),
        past=tuple(rest[1:7]),
        out_nan=int(numbers[30]),
        out_inf=int(numbers[31]),
        ref_nan=rest[7],
        ref_inf=rest[8],
        nan_matches=rest[9] == 0,
        inf_matches=rest[10] == 0,
    )


class Arena:
    """Buffers in one allocation, between guard zones; ``buffers`` are uint8 views, by name."""

    def __init__(self, sizes: Mapping[str, int], surroundings: str) -> None:
        packed = surroundings == "packed"
        self.pattern = PATTERNS[surroundings]
        step = PACKED_ALIGNMENT if packed else ALIGNMENT
        guard = 0 if packed else GUARD_BYTES
        place = GUARD_BYTES
        places: dict[str, tuple[int, int]] = {}
        self._guards: list[tuple[str, int, int]] = [("before the first buffer", 0, GUARD_BYTES)]
        for index, (name, nbytes) in enumerate(sizes.items()):
            places[name] = (place, nbytes)
            end = -(-(place + nbytes) // step) * step
            last = index == len(sizes) - 1
            after = GUARD_BYTES if last else guard
            # Whole words after the buffer: up to three bytes behind its end belong to none.
            free = -(-(place + nbytes) // 4) * 4
            if end + after > free and not (packed and not last):
                self._guards.append((f"after {name}", free, end + after - free))
            place = end + after
        self.memory = torch.empty(place // 4, dtype=torch.int32, device="cuda")
        self._signed = int(np.array([self.pattern], dtype=np.uint32).view(np.int32)[0])
        self.memory.fill_(self._signed)
        raw = self.memory.view(torch.uint8)
        self.buffers = {name: raw[at : at + n] for name, (at, n) in places.items()}
        self._places = places

    @property
    def nbytes(self) -> int:
        """What it takes of the device's memory."""
        return self.memory.numel() * 4

    def address(self, name: str) -> int:
        """Where a buffer starts."""
        return int(self.memory.data_ptr()) + self._places[name][0]

    def words(self, name: str) -> int:
        """The 32-bit words a buffer takes, its last one filled up."""
        return -(-self._places[name][1] // 4)

    def guards(self) -> tuple[tuple[str, Stretch], ...]:
        """The guard zones by where they lie."""
        base = self.memory.data_ptr()
        return tuple(
            (where, Stretch(base + at, n // 4, 0, self.pattern)) for where, at, n in self._guards
        )

    def mend(self, index: int) -> None:
        """Fill a guard zone again."""
        _, at, nbytes = self._guards[index]
        self.memory[at // 4 : (at + nbytes) // 4].fill_(self._signed)


def poison(buffer: Tensor, width: int) -> None:
    """Fill a buffer with the mark of unwritten elements of ``width`` bytes (see ``oracle``)."""
    if width == 1:
        buffer.fill_(oracle.POISON_WORD & 0xFF)
    elif width == 2:
        buffer.view(torch.int16).fill_(oracle.POISON_HALF)
    else:
        buffer.view(torch.int32).fill_(oracle.POISON_WORD)


def without_marks(value: Tensor) -> Tensor:
    """A copy of a tensor with zero where an element still holds the mark (see ``oracle``)."""
    flat = value.clone().reshape(-1)
    width = flat.element_size()
    if width == 2:
        marks = flat.view(torch.int16) == oracle.POISON_HALF
    elif width == 1:
        return flat.view(value.shape)
    else:
        words = flat.view(torch.int32).view(flat.numel(), width // 4)
        marks = (words == oracle.POISON_WORD).all(dim=1)
    return flat.masked_fill_(marks, 0).view(value.shape)  # an index would take 8 bytes an element
