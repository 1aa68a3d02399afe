"""Run a function in a forked child with limits on time, memory and output.

Problem files are code by others: they may loop, exit, allocate without end or print without end.
The child keeps such a file from taking the tool down with it. It is *not* a security boundary: the
child has the user's files and network. An ``isolated`` child is for code that nobody has read: it
computes and reads files, and nothing else is permitted (:mod:`kernelassay.execute.isolation`).
"""

from __future__ import annotations

import ctypes
import faulthandler
import io
import math
import os
import pickle
import resource
import selectors
import signal
import struct
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from kernelassay.errors import KernelassayError, LimitError, ProblemError, UnsupportedError
from kernelassay.execute.isolation import isolate
from kernelassay.execute.supervision import signal_name

OUTPUT_LIMIT = 16 << 20  # bytes a child may print before it is ended
OUTPUT_KEPT = 64 << 10  # bytes of its output that are kept
RESULT_LIMIT = 256 << 20  # bytes of a pickled result

_STOP_SECONDS = 0.2  # how soon a child that is to be stopped is

_HEADER = struct.Struct(">Q")
_PR_SET_PDEATHSIG = 1

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Limits:
    seconds: float
    memory_bytes: int
    where: str
    reserves_space: bool
    isolated: bool


def run_limited(
    function: Callable[..., R],
    args: tuple[Any, ...],
    *,
    seconds: float,
    memory_bytes: int,
    where: str,
    reserves_space: bool = False,
    isolated: bool = False,
    stopped: threading.Event | None = None,
) -> R:
    """``function(*args)`` in a forked child; returns its result, pickled back.

    ``seconds`` is wall time, ``memory_bytes`` what the child may map beyond the parent's address
    space. With ``reserves_space`` only writable private memory counts: CUDA reserves far more
    address space than it uses. The child computes on one torch thread and sees no standard input;
    what it prints goes into the hint of an error. The result may hold builtin values, numpy arrays
    and this package's own classes; anything else (a tensor, a function) is refused. From an
    ``isolated`` child only builtin values and arrays come back. Setting ``stopped``, from another
    thread, ends the child early.

    Raises the ``KernelassayError`` the function raised (``UnsupportedError`` where an isolated
    child cannot be had), or ``ProblemError`` (with ``where``) when it raised anything else or ended
    the process; its subclass ``LimitError`` when it ran out
    of time or memory, printed too much or was killed.
    """
    if not sys.platform.startswith("linux"):
        raise UnsupportedError("problem code runs under limits on Linux only", where=where)
    limits = _Limits(seconds, memory_bytes, where, reserves_space, isolated)
    result_read, result_write = os.pipe()
    output_read, output_write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Python 3.12 warns about forking with threads alive; the child starts none before work.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(result_read)
        os.close(output_read)
        _child(function, args, result_write, output_write, limits)
    os.close(result_write)
    os.close(output_write)
    child = _Child(pid, result_read, output_read)
    try:
        ending = child.watch(time.monotonic() + seconds, stopped)
    finally:
        status = child.reap()
    value: R = _conclude(child, ending, status, limits)
    return value


# ---- the child ---------------------------------------------------------------------------------


def _child(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    result: int,
    output: int,
    limits: _Limits,
) -> NoReturn:
    try:
        os.setsid()
        redirect(output)
        _limit(limits)
        message = _outcome(function, args, result if limits.isolated else None)
    except BaseException:
        message = pickle.dumps(("raised", traceback.format_exc(limit=3), ""))
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        _write_all(result, _HEADER.pack(len(message)) + message)
    finally:
        # Not sys.exit: the parent's atexit handlers and test runner must not run here.
        os._exit(0)


def redirect(output: int) -> None:
    """Take this process's standard input away, and send what it prints to a file descriptor."""
    # An inherited handler would dump the crash of foreign code onto the parent's terminal.
    faulthandler.disable()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = open(1, "w", closefd=False, errors="replace")  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="replace")  # noqa: SIM115


def _limit(limits: _Limits) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    column, kind = (5, resource.RLIMIT_DATA) if limits.reserves_space else (0, resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[column])
    space = pages * resource.getpagesize() + limits.memory_bytes
    resource.setrlimit(kind, (space, space))
    # Backs up the wall clock: ends a busy child even when its parent is stopped.
    cpu = math.ceil(limits.seconds) + 5
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["OMP_NUM_THREADS"] = "1"
    if "torch" in sys.modules:
        # OpenMP's thread pool does not survive a fork; one thread needs none.
        sys.modules["torch"].set_num_threads(1)


def _outcome(
    function: Callable[..., Any], args: tuple[Any, ...], isolated_but: int | None
) -> bytes:
    try:
        if isolated_but is not None:
            isolate(isolated_but)
        value = function(*args)
        return pickle.dumps(("returned", value, ""))
    except KernelassayError as error:
        return pickle.dumps(("refused", error, ""))
    except MemoryError:
        return pickle.dumps(("memory", "", ""))
    except SystemExit as error:
        return pickle.dumps(("raised", f"ends the process with exit({error.code})", ""))
    except BaseException as error:
        # torch reports a failed allocation as a RuntimeError.
        if "can't allocate memory" in str(error):
            return pickle.dumps(("memory", "", ""))
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = "".join(traceback.format_exception_only(error)).strip()
        return pickle.dumps(("raised", text, f"{frame.filename}:{frame.lineno}"))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


# ---- the parent --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Child:
    pid: int
    result: int
    output: int
    message: bytearray = field(default_factory=bytearray)
    printed: bytearray = field(default_factory=bytearray)
    printed_bytes: int = 0

    def watch(self, deadline: float, stopped: threading.Event | None) -> str:
        """Collect output until the child answers or ends; why the watch ended."""
        longest_wait = _STOP_SECONDS if stopped is not None else math.inf
        end = os.pidfd_open(self.pid)
        try:
            with selectors.DefaultSelector() as selector:
                for descriptor in (self.result, self.output, end):
                    selector.register(descriptor, selectors.EVENT_READ)
                while True:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return "timeout"
                    if stopped is not None and stopped.is_set():
                        return "stopped"
                    ready = {key.fd for key, _ in selector.select(min(left, longest_wait))}
                    for descriptor in ready & {self.result, self.output}:
                        if not self._read(descriptor):
                            selector.unregister(descriptor)
                    if self.printed_bytes > OUTPUT_LIMIT:
                        return "output"
                    if self._answered():
                        return "answered"
                    if ready == {end}:
                        return "died"
        finally:
            os.close(end)

    def _read(self, descriptor: int) -> bool:
        data = os.read(descriptor, 1 << 16)
        if descriptor == self.result:
            self.message += data
        else:
            self.printed_bytes += len(data)
            self.printed += data[: OUTPUT_KEPT - len(self.printed)]
        return bool(data)

    def _answered(self) -> bool:
        if len(self.message) < _HEADER.size:
            return False
        (length,) = _HEADER.unpack_from(self.message)
        return length > RESULT_LIMIT or len(self.message) >= _HEADER.size + length

    def reap(self) -> int:
        """End the child and every process of its group; the wait status of the child."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            # The group does not exist yet when the child was stopped before its setsid.
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.result)
        os.close(self.output)
        return status


def _conclude(child: _Child, ending: str, status: int, limits: _Limits) -> Any:
    printed = bytes(child.printed[-2000:]).decode(errors="replace").strip()
    last = printed.splitlines()[-1][:300] if printed else ""
    said = f"; its last output was: {last}" if last else ""

    def failed(what: str, hint: str, kind: type[ProblemError] = ProblemError) -> ProblemError:
        return kind(what, where=limits.where, hint=hint + said)

    memory = failed(
        f"needs more than {limits.memory_bytes >> 20} MB of memory",
        "use smaller sizes, or raise the memory limit",
        LimitError,
    )
    if ending == "timeout":
        raise failed(
            f"did not end within {limits.seconds:g} s",
            "look for an endless loop, or use smaller sizes",
            LimitError,
        )
    if ending == "stopped":
        raise failed("was stopped", "run it again", LimitError)
    if ending == "output":
        raise failed(f"printed more than {OUTPUT_LIMIT >> 20} MB", "remove the output", LimitError)
    if ending == "died":
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with {code}"
        # Nothing but the system (or a person) sends SIGKILL: mostly, memory has run out.
        kind = LimitError if code == -signal.SIGKILL else ProblemError
        raise failed(f"the process {how}", "a problem file must not end its process", kind)
    (length,) = _HEADER.unpack_from(child.message)
    if length > RESULT_LIMIT:
        raise failed(f"returned more than {RESULT_LIMIT >> 20} MB", "return less")
    try:
        read = _ArraysUnpickler if limits.isolated else _Unpickler
        kind, value, line = read(io.BytesIO(child.message[_HEADER.size :])).load()
    except Exception as error:
        raise failed(f"returned an unreadable result: {error}", "return plain values") from error
    if kind == "refused":
        raise value
    if kind == "memory":
        raise memory
    if kind == "raised":
        raise failed(f"{value} ({line})" if line else str(value), "the code raises an exception")
    return value


class _Unpickler(pickle.Unpickler):
    """Builds only plain values: a child that ran foreign code may write anything into the pipe."""

    _plain = frozenset(
        [("builtins", name) for name in ("set", "frozenset", "complex", "bytearray", "slice")]
        + [("collections", "OrderedDict"), ("kernelassay.errors", "_rebuild")]
        + [("numpy", "ndarray"), ("numpy", "dtype")]
        + [
            (f"{package}.multiarray", name)
            for package in ("numpy.core", "numpy._core")
            for name in ("_reconstruct", "scalar")
        ]
        + [("numpy._core.numeric", "_frombuffer"), ("numpy.core.numeric", "_frombuffer")]
        + [("copyreg", "_reconstructor"), ("builtins", "object")]
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._plain:
            return super().find_class(module, name)
        if module.partition(".")[0] == "kernelassay":
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")


class _ArraysUnpickler(_Unpickler):
    """Builds no object of this package, whose constructors may do things, but for its errors."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._plain or module == "kernelassay.errors":
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")
