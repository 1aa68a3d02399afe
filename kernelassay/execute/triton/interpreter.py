"""Triton texts under Triton's interpreter, with every access of a kernel checked.

A finding never ends a run; the kernel goes on under stated semantics (ADR 33):

- Each launch sees its tensors' memory in windows of their own, more than twice
  :data:`options.SLACK` apart (:mod:`memory`).
- A lane outside of every window, but within :data:`options.SLACK` of one, reads a pattern
  (``cpu.device.PATTERNS``) and writes nothing: findings ``oob-global-read``, ``oob-global-write``
  (an atomic is a write). Farther out the run ends as ``illegal-address``.
- Masked lanes of a load without ``other`` hold a stated value.
- bfloat16, which the interpreter computes wrong without a word, is refused.
- Autotuning, which would time the interpreter, takes the first configuration.

What the interpreter calls to touch memory has no public name: :func:`self_test` sees at start that
it is there and that the checks take hold.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import interpreter as private

from kernelassay.errors import ToolchainError
from kernelassay.execute.cpu.device import PATTERNS
from kernelassay.execute.triton.arrays import changed
from kernelassay.execute.triton.memory import READ, WRITE, Checks, Guard, Memory
from kernelassay.execute.triton.options import Options
from kernelassay.execute.triton.serving import Ran, UnfitError
from kernelassay.execute.triton.tensors import Allocations, input_tensor, marked, output_tensor
from kernelassay.kernel import Finding

SUPPORTED = "3.6 to 3.9"


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
        patch = private._patch_lang_tensor
        private._patch_lang_tensor = _with_index(patch)
        try:
            yield
        finally:
            private._patch_lang_tensor = patch
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


def _with_index(patch: Any) -> Any:
    """Let a loop run over a scalar: up to Triton 3.6 one has a dimension, which NumPy refuses."""

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    return patched


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
                   "TensorDescriptor", "InterpretedFunction", "_get_np_dtype", "_unwrap_tensor",
                   "_patch_lang_tensor")),
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


def _program() -> tuple[int, ...]:
    return tuple(map(int, private.interpreter_builder.grid_idx))


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
        self._checks = Checks(PATTERNS[options.surroundings], _program)
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
    if not np.array_equal(numbers, expected, equal_nan=True) or counts != {READ: 1, WRITE: 2}:
        raise _unfit("accesses outside of tensors are not seen")
