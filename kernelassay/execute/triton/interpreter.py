"""Triton texts under Triton's interpreter, with every access of a kernel checked.

A finding never ends a run; the kernel goes on under stated semantics (ADR 33):

- Each launch sees its tensors' memory in windows of their own, :data:`SLACK` bytes and more apart.
- A lane outside of every window, but within :data:`SLACK` of one, reads a pattern
  (``cpu.device.PATTERNS``) and writes nothing: findings ``oob-global-read``, ``oob-global-write``
  (an atomic is a write). Farther out the run ends as ``illegal-address``.
- Masked lanes of a load without ``other`` hold a stated value.
- bfloat16, which the interpreter computes wrong without a word, is refused.
- Autotuning, which would time the interpreter, takes the first configuration.

What the interpreter calls to touch memory has no public name: :func:`self_test` sees at start that
it is there and that the checks take hold.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.backends.compiler import GPUTarget
from triton.runtime import interpreter as private

from kernelassay import cell
from kernelassay.errors import ToolchainError
from kernelassay.execute.cpu.device import PATTERNS
from kernelassay.execute.triton.arrays import changed
from kernelassay.execute.triton.options import SLACK, Options
from kernelassay.execute.triton.serving import Ran, StoppedError, UnfitError
from kernelassay.execute.triton.tensors import Allocations, input_tensor, marked, output_tensor
from kernelassay.kernel import Finding

SUPPORTED = "3.6 to 3.9"
_ALIGNMENT = 256
_READ, _WRITE = "oob-global-read", "oob-global-write"


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
    """Decides about addresses, by the windows of the launch that goes on."""

    def __init__(self, pattern: int) -> None:
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
        where = f"{self._kernel}, program {tuple(private.interpreter_builder.grid_idx)}"
        verb = "reads" if kind == _READ else "writes"
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
        bad = self._outside(ptrs, mask, dtype.itemsize, _READ)
        if bad is not None:
            other = np.array(np.broadcast_to(other, np.shape(ptrs)), dtype)
            other[bad] = self._checks.pattern_at(_addresses(ptrs)[bad], dtype)
            mask = _without(mask, bad)
        return self._real.load(ptrs, mask, other, dtype)

    def store(self, ptrs: Any, value: Any, mask: Any) -> Any:
        """A store whose lanes outside are lost."""
        bad = self._outside(ptrs, mask, np.asarray(value).dtype.itemsize, _WRITE)
        return self._real.store(ptrs, value, mask if bad is None else _without(mask, bad))

    def atomic_rmw(self, op: Any, ptrs: Any, value: Any, mask: Any, order: Any) -> Any:
        """An atomic whose lanes outside are lost and give the pattern."""
        dtype = np.asarray(value).dtype
        bad = self._outside(ptrs, mask, dtype.itemsize, _WRITE)
        if bad is None:
            return self._real.atomic_rmw(op, ptrs, value, mask, order)
        found = np.array(self._real.atomic_rmw(op, ptrs, value, _without(mask, bad), order))
        found[bad] = self._checks.pattern_at(_addresses(ptrs)[bad], dtype)
        return found

    def atomic_cas(self, ptrs: Any, expected: Any, value: Any, order: Any) -> Any:
        """Likewise; it has no mask, so that the lanes inside go alone."""
        dtype = np.asarray(value).dtype
        bad = self._outside(ptrs, None, dtype.itemsize, _WRITE)
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


class Hooks:
    """What is put in the interpreter's place while texts run, and taken out again."""

    def __init__(self, checks: Checks, undefined: str) -> None:
        self._checks = checks
        self._undefined = undefined
        self._memory = Memory()
        _require_names()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Within, launches are checked."""
        builder, executor = private.interpreter_builder, private.GridExecutor
        real, prepare = private._interpreter, executor._init_args_hst
        private._interpreter = Guard(real, self._checks)
        executor._init_args_hst = self._windowed(prepare)
        loads = type(builder).create_masked_load
        builder.create_masked_load = self._defined(functools.partial(loads, builder))
        for name in ("cast_impl", "create_fp_to_fp"):
            setattr(builder, name, _without_bfloat16(getattr(type(builder), name), builder))
        try:
            yield
        finally:
            private._interpreter = real
            executor._init_args_hst = prepare
            for name in ("create_masked_load", "cast_impl", "create_fp_to_fp"):
                delattr(builder, name)

    def _windowed(self, prepare: Any) -> Any:
        @functools.wraps(prepare)
        def windowed(executor: Any, positional: Any, keywords: Any) -> Any:
            host, named = prepare(executor, positional, keywords)
            tensors = list(_tensors([*zip(executor.arg_names, host, strict=False), *named.items()]))
            storages: dict[int, tuple[str, Any]] = {}
            for name, tensor in tensors:
                if tensor.dtype == torch.bfloat16:
                    raise UnfitError(
                        f"{name} is bfloat16, which Triton's interpreter computes wrong",
                        "use float16 or float32, or run on a GPU",
                    )
                storage = tensor.untyped_storage()
                storages.setdefault(storage.data_ptr(), (name, storage))
            taken = self._memory.take(list(storages.values()))
            self._checks.launch(executor.fn.__name__, [window for window, _ in taken])
            placed = dict(zip(storages, (storage for _, storage in taken), strict=True))
            for _, tensor in tensors:
                storage = placed[tensor.untyped_storage().data_ptr()]
                tensor.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
            return host, named

        return windowed

    def _defined(self, load: Any) -> Any:
        def defined(ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
            if other is None and self._undefined == "nan":
                kind = ptrs.get_element_ty()
                value = np.nan if kind.is_floating() else 0
                dtype = private._get_np_dtype(kind)
                other = private.TensorHandle(np.full(ptrs.data.shape, value, dtype), kind)
            return load(ptrs, mask, other, *rest, **named)

        return defined


def _tensors(arguments: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a launch, with names."""
    for name, value in arguments:
        if isinstance(value, tuple):
            yield from _tensors([(f"{name}[{i}]", item) for i, item in enumerate(value)])
        elif isinstance(value, private.TensorDescriptor):
            yield from _tensors([(name, value.base)])
        elif hasattr(value, "data_ptr"):
            yield name, private._unwrap_tensor(value)


def _without_bfloat16(method: Any, builder: Any) -> Any:
    def checked(source: Any, kind: Any, *rest: Any) -> Any:
        if tl.bfloat16 in (source.dtype.scalar, kind.scalar):
            raise UnfitError(
                "the kernel converts bfloat16, which Triton's interpreter does wrong",
                "use float16 or float32, or run on a GPU",
            )
        return method(builder, source, kind, *rest)

    return checked


def _require_names() -> None:
    needed = [
        (private, ("_interpreter", "interpreter_builder", "GridExecutor", "TensorHandle",
                   "TensorDescriptor", "InterpretedFunction", "_get_np_dtype", "_unwrap_tensor")),
        (getattr(private, "_interpreter", None), ("load", "store", "atomic_rmw", "atomic_cas")),
        (getattr(private, "GridExecutor", None), ("_init_args_hst",)),
        (getattr(private, "InterpretedFunction", None), ("rewritten_fn",)),
        (getattr(private, "InterpreterBuilder", None),
         ("create_masked_load", "cast_impl", "create_fp_to_fp")),
    ]  # fmt: skip
    for owner, names in needed:
        missing = [name for name in names if not hasattr(owner, name)]
        if missing:
            raise _unfit(f"its interpreter has no {', '.join(missing)}")


def _unfit(what: str) -> ToolchainError:
    return ToolchainError(
        f"accesses cannot be checked under triton {triton.__version__}: {what}",
        hint=f"install triton {SUPPORTED}",
    )


class _NoDriver:
    """Stands for a device's driver, which autotuning asks: it times nothing, so the first wins."""

    def get_benchmarker(self) -> Any:
        return lambda call, quantiles=(0.5,), **_: [0.0] * len(quantiles)

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


class Interpreter:
    """Runs Triton texts on the CPU, checked."""

    def __init__(self, options: Options) -> None:
        self._checks = Checks(PATTERNS[options.surroundings])
        self._hooks = Hooks(self._checks, options.undefined)
        triton.runtime.driver.set_active(_NoDriver())
        self._given: list[tuple[bytearray, bytes]] = []

    @contextmanager
    def around(self) -> Iterator[None]:
        """Launches are checked, and allocations marked."""
        with self._hooks.installed(), Allocations(marked):
            yield

    def inputs(self, heads: Sequence[dict[str, Any]], blobs: Sequence[bytes]) -> list[Any]:
        """Tensors of the same strides in memory of their own."""
        self._checks.reset()
        self._given = [(bytearray(blob), blob) for blob in blobs]
        return [
            input_tensor(head, memory) for head, (memory, _) in zip(heads, self._given, strict=True)
        ]

    def finish(self, found: Any) -> Ran:
        """The output, what was found, and which inputs changed."""
        ran = output_tensor(found, "cpu")
        return replace(ran, findings=self.findings(), changed=changed(self._given))

    def failed(self, error: BaseException) -> Ran | None:
        """The interpreter has nothing to say of an error."""
        return None

    def findings(self) -> tuple[Finding, ...]:
        """What the launches of this run did outside of tensors."""
        return self._checks.findings

    def forget(self, module: ModuleType) -> None:
        """Let go of what the interpreter keeps of a text's kernels."""
        kept = private.InterpretedFunction.rewritten_fn
        for function in [f for f in kept if getattr(f, "__globals__", None) is module.__dict__]:
            del kept[function]


_PROBE = """
import torch
import triton
import triton.language as tl

@triton.jit
def probe(x, y, z, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o) + tl.load(x + o, mask=o < 1))
    tl.atomic_add(z + o, tl.load(x + o, mask=o < n, other=0.0))
    tl.atomic_cas(z + o, 1.0, 2.0) if n < 0 else None

def run(x):
    y, z = torch.empty_like(x), torch.zeros_like(x)
    probe[(1,)](x, y, z, x.shape[0], BLOCK=4)
    return torch.cat([y, z])
"""


def self_test() -> None:
    """See that the checks take hold. Raises :class:`ToolchainError` naming the versions that do."""
    from kernelassay.execute.triton.serving import Texts

    interpreter = Interpreter(Options("interpreter", undefined="nan"))
    head = {"dtype": "float32", "shape": [3], "strides": [1]}
    inputs = interpreter.inputs([head], [np.ones(3, np.float32).tobytes()])
    try:
        with interpreter.around():
            function = Texts(1, interpreter.forget).function(_PROBE)
            found = function(*inputs)
            ran = interpreter.finish(found)
    except Exception as error:
        raise _unfit(f"{type(error).__name__}: {error}"[:500]) from error
    numbers = np.frombuffer(ran.data, np.float32)
    expected = np.array([2, np.nan, np.nan, 1, 1, 1], np.float32)
    counts = {finding.kind: finding.count for finding in ran.findings}
    if not np.array_equal(numbers, expected, equal_nan=True) or counts != {_READ: 1, _WRITE: 2}:
        raise _unfit("accesses outside of tensors are not seen")
