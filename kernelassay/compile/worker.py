"""Compiler workers: fresh interpreters under limits, replaced when NVRTC takes one down.

A worker is a new process, not a fork: the parent may hold torch and its threads. Requests and
answers are length-prefixed pickles over pipes of our own, so that nothing a library prints can
get between them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from kernelassay.compile.nvrtc import Compilation, compile_program, version
from kernelassay.errors import ToolchainError

MEMORY_LIMIT = 12 << 30
"""Address space of a worker, in bytes; a compiler in endless recursion needs a bound."""
STACK_LIMIT = 8 << 20
START_SECONDS = 300.0

_LENGTH = struct.Struct("<Q")
_START = (
    "import sys; sys.path[:0] = [{root!r}]; "
    "from {module} import serve; serve({requests}, {answers})"
)


class WorkerDiedError(Exception):
    """The compiler took its process down, or was stopped; ``reason`` says which.

    ``transient`` deaths may go otherwise on another machine or day.
    """

    def __init__(self, reason: str, *, transient: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.transient = transient


class Worker:
    """One compiler process, started when first needed; not to be shared between threads.

    ``SERVES`` is the module whose ``serve`` the process runs: one for another compiler subclasses.
    """

    SERVES: ClassVar[str] = "kernelassay.compile.worker"

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: BinaryIO | None = None
        self._answers = -1
        self._stopped = False

    def compile(self, program: str, extra: tuple[str, ...], seconds: float) -> Compilation:
        """Compile ``program``; raises ``WorkerDiedError`` after a crash or ``seconds``."""
        answer = self.ask((program, extra), seconds)
        assert isinstance(answer, Compilation)
        return answer

    def ask(self, request: Any, seconds: float) -> Any:
        """The answer to a request; raises as :meth:`compile`, or the error that is the answer."""
        if self._stopped:
            raise ToolchainError("the compilation was stopped")
        if self._process is None:
            self._start()
        deadline = time.monotonic() + seconds
        try:
            assert self._requests is not None
            _write(self._requests, request)
            answer = self._receive(deadline)
        except (BrokenPipeError, EOFError):
            code = self._reap()
            if self._stopped:
                raise ToolchainError("the compilation was stopped") from None
            # Only the system's own killer (out of memory) or a person sends SIGKILL.
            transient = code == -signal.SIGKILL
            raise WorkerDiedError(_death(code), transient=transient) from None
        except TimeoutError:
            self.close()
            raise WorkerDiedError(
                f"compiler stopped after {seconds:.0f} s", transient=True
            ) from None
        except BaseException:  # an interrupt between request and answer: they would get out of step
            self.close()
            raise
        if isinstance(answer, ToolchainError):
            raise answer
        return answer

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopped

    def stop(self) -> None:
        """Make the compilation that another thread waits for fail, and all later ones."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def _start(self) -> None:
        child_requests, our_requests = os.pipe()
        our_answers, child_answers = os.pipe()
        root = str(Path(__file__).resolve().parents[2])
        code = _START.format(
            root=root, module=self.SERVES, requests=child_requests, answers=child_answers
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(child_requests, child_answers),
            )
        finally:
            os.close(child_requests)
            os.close(child_answers)
        self._requests = os.fdopen(our_requests, "wb")
        self._answers = our_answers
        try:
            hello = self._receive(time.monotonic() + START_SECONDS)
        except (EOFError, TimeoutError):
            self.close()
            hello = ToolchainError("a compiler process does not start")
        if isinstance(hello, ToolchainError):
            raise hello

    def _reap(self) -> int:
        """Wait for the process to end, and forget it; its exit status."""
        assert self._process is not None
        code = self._process.wait()
        self._process = None
        if self._requests is not None:
            with contextlib.suppress(BrokenPipeError):
                self._requests.close()
        os.close(self._answers)
        return code

    def _receive(self, deadline: float) -> Any:
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        return pickle.loads(self._read(length, deadline))

    def _read(self, count: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise TimeoutError
            piece = os.read(self._answers, count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)


def _death(code: int) -> str:
    if code < 0:
        return f"compiler crash (signal {-code}, {signal.strsignal(-code)})"
    return f"compiler crash (exit status {code})"


def serve(requests: int, answers: int) -> None:
    """The loop of a worker process; ends when the parent closes its side."""
    _limit(resource.RLIMIT_AS, MEMORY_LIMIT)
    _limit(resource.RLIMIT_STACK, STACK_LIMIT)
    _limit(resource.RLIMIT_CORE, 0)
    answer_all(requests, answers, version, lambda request: compile_program(*request))


def answer_all(
    requests: int, answers: int, greeting: Callable[[], str], answer: Callable[[Any], Any]
) -> None:
    """Greet, then answer requests until the parent closes its side.

    ``greeting`` is the compiler's version. A :class:`ToolchainError` that it or ``answer`` raises
    is the answer: not to be taken for a mutant's crash.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    with os.fdopen(requests, "rb") as source, os.fdopen(answers, "wb") as sink:
        _write(sink, _or_error(greeting))
        while head := source.read(_LENGTH.size):
            request = pickle.loads(source.read(_LENGTH.unpack(head)[0]))
            _write(sink, _or_error(partial(answer, request)))


def _or_error(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except ToolchainError as error:
        return error


def _limit(kind: int, value: int) -> None:
    soft, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    if soft == resource.RLIM_INFINITY or soft > value:
        resource.setrlimit(kind, (value, hard))


def _write(stream: BinaryIO, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()
