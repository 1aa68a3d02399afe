"""The CUDA driver for one process: modules, launches, and what errors mean.

PyTorch makes the context and owns the stream. Errors come as codes, since an outcome depends on
which it is; ``cuda.core`` gives exceptions with text.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kernelassay import cell
from kernelassay.compile.cubins import CubinImage
from kernelassay.errors import ToolchainError, UnsupportedError

_LOADED_MODULES = 256
_DEFAULT_SHARED_BYTES = 48 << 10
_TICK_SECONDS = 0.02

# What a kernel does to itself. Anything else (an uncorrectable error of memory, a device that is
# gone) is the machine's doing.
_FAULTS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": cell.ILLEGAL_ADDRESS,
    "CUDA_ERROR_MISALIGNED_ADDRESS": cell.MISALIGNED_ADDRESS,
    "CUDA_ERROR_OUT_OF_MEMORY": cell.OUT_OF_MEMORY,
    **dict.fromkeys(
        (
            "CUDA_ERROR_LAUNCH_FAILED",
            "CUDA_ERROR_ILLEGAL_INSTRUCTION",
            "CUDA_ERROR_INVALID_ADDRESS_SPACE",
            "CUDA_ERROR_INVALID_PC",
            "CUDA_ERROR_HARDWARE_STACK_ERROR",
            "CUDA_ERROR_ASSERT",
        ),
        cell.CRASH,
    ),
}
_REFUSALS = frozenset(
    {
        "CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        "CUDA_ERROR_INVALID_CONFIGURATION",
        "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
    }
)

_CTYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "signed": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "unsigned int": ctypes.c_uint,
    "long": ctypes.c_long,
    "long long": ctypes.c_longlong,
    "unsigned long": ctypes.c_ulong,
    "unsigned long long": ctypes.c_ulonglong,
    "size_t": ctypes.c_size_t,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "uint": ctypes.c_uint,
    "short": ctypes.c_short,
    "unsigned short": ctypes.c_ushort,
    "char": ctypes.c_char,
    "unsigned char": ctypes.c_ubyte,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
}


class FaultError(Exception):
    """The device stopped a kernel. After it the context is lost, unless ``refused``.

    ``outcome`` is one of ``cell.OUTCOMES``; ``refused`` tells that the launch never began.
    """

    def __init__(self, outcome: str, detail: str, *, refused: bool = False) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.refused = refused


class Function:
    """A kernel that is ready to be launched."""

    def __init__(self, handle: Any, types: tuple[Any, ...]) -> None:
        self.handle = handle
        self.types = types
        self.shared_bytes = _DEFAULT_SHARED_BYTES


class Driver:
    """Modules and launches on torch's current stream. One per process."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise ToolchainError(
                f"cuda.bindings.driver does not import: {error}",
                hint="install kernelassay[nvrtc] on a machine with a CUDA driver",
            ) from error
        self._driver = driver
        # Who waits sleeps: there may be more processes than cores, and a spinning one takes one.
        waiting = driver.CUctx_flags.CU_CTX_SCHED_BLOCKING_SYNC
        self._checked(driver.cuInit(0))
        self._checked(driver.cuDevicePrimaryCtxSetFlags(0, waiting))
        torch.zeros(1, device="cuda")  # makes torch's context current
        self.stream = int(torch.cuda.current_stream().cuda_stream)
        self._own: dict[Path, Any] = {}
        self._modules: OrderedDict[Path, Any] = OrderedDict()
        self._functions: dict[tuple[Path, str], Function] = {}
        self._watch = Watchdog()

    def function(self, image: CubinImage, kernel: str) -> Function:
        """A kernel of an image, its module loaded."""
        key = (image.path, dict(image.functions)[kernel])
        if key not in self._functions:
            types = tuple(ctype(text) for text in dict(image.parameters)[kernel])
            self._functions[key] = self._symbol(self._module(image.path), key[1], types)
        else:
            self._modules.move_to_end(image.path)
        return self._functions[key]

    def own(self, path: Path, name: str, types: Sequence[Any]) -> Function:
        """A function of a cubin file by its symbol, for good: its module stays loaded."""
        if path not in self._own:
            self._own[path] = self._load(path)
        return self._symbol(self._own[path], name, types)

    def _module(self, path: Path) -> Any:
        """The module of an image; those used longest ago give way."""
        if path not in self._modules:
            self._modules[path] = self._load(path)
            while len(self._modules) > _LOADED_MODULES:
                oldest, module = self._modules.popitem(last=False)
                self._functions = {k: f for k, f in self._functions.items() if k[0] != oldest}
                self._checked(self._driver.cuModuleUnload(module))
        self._modules.move_to_end(path)
        return self._modules[path]

    def _load(self, path: Path) -> Any:
        # The data is copied by the driver; a path could be changed under its hands.
        return self._checked(self._driver.cuModuleLoadData(path.read_bytes()))

    def _symbol(self, module: Any, name: str, types: Sequence[Any]) -> Function:
        found = self._driver.cuModuleGetFunction(module, name.encode())
        return Function(self._checked(found), tuple(types))

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        values: tuple[Any, ...],
    ) -> None:
        """Queue a launch. Raises :class:`FaultError` with ``refused`` if the driver refuses it."""
        if shared_bytes > function.shared_bytes:
            name = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._checked(self._driver.cuFuncSetAttribute(function.handle, name, shared_bytes))
            function.shared_bytes = shared_bytes
        self._checked(
            self._driver.cuLaunchKernel(
                function.handle,
                *grid,
                *block,
                shared_bytes,
                self.stream,
                (values, function.types),
                0,
            )
        )

    def fill(self, address: int, value: int, nbytes: int) -> None:
        """Queue a ``cudaMemset``."""
        self._checked(self._driver.cuMemsetD8Async(address, value & 0xFF, nbytes, self.stream))

    def wait(self, seconds: float, expired: Callable[[], None]) -> None:
        """Wait for the stream.

        Raises :class:`FaultError` for what went wrong on the device. If ``seconds`` pass, calls
        ``expired`` in another thread and kills this process: nothing else ends a kernel.
        """
        with self._watch.limit(seconds, expired):
            self._checked(self._driver.cuStreamSynchronize(self.stream))

    def _checked(self, result: tuple[Any, ...]) -> Any:
        error, *values = result
        if int(error) != 0:
            name = error.name
            outcome = _FAULTS.get(name, cell.INFRASTRUCTURE)
            refused = name in _REFUSALS
            raise FaultError(cell.LAUNCH_FAILURE if refused else outcome, name, refused=refused)
        return values[0] if values else None


class Watchdog:
    """Ends the process when a wait takes too long; a hung kernel dies with its process."""

    def __init__(self) -> None:
        self._deadline = float("inf")
        self._expired: Callable[[], None] = lambda: None
        self._deciding = threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    @contextmanager
    def limit(self, seconds: float, expired: Callable[[], None]) -> Iterator[None]:
        """Within, the process may live for ``seconds`` more.

        Whoever is past that does not get out: what follows would mix with ``expired``.
        """
        with self._deciding:
            self._expired = expired
            self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._deciding:
                self._deadline = float("inf")

    def _run(self) -> None:
        while True:
            time.sleep(_TICK_SECONDS)
            with self._deciding:
                if time.monotonic() > self._deadline:
                    try:
                        self._expired()
                    finally:
                        os.kill(os.getpid(), signal.SIGKILL)


def ctype(text: str) -> Any:
    """The C type of a kernel's parameter. Raises ``UnsupportedError`` for a struct."""
    if "*" in text or "[" in text:
        return ctypes.c_void_p
    name = " ".join(word for word in text.split() if word not in ("const", "volatile"))
    if name not in _CTYPES:
        raise UnsupportedError(
            f"the CUDA executor cannot pass a kernel parameter of type {name!r}",
            hint="pass numbers and pointers",
        )
    return _CTYPES[name]
