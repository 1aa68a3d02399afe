"""Running trusted but heavy work in a process of its own, one per call.

Lanes are threads; what they compute in Python (rules, translation, identity) would take turns on
one core. A task is a module-level function with plain arguments, forked from the fork server.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from kernelassay.errors import KernelassayError
from kernelassay.execute.worker import context

T = TypeVar("T")
POLL_SECONDS = 0.2


class TaskStoppedError(Exception):
    """The run was stopped while a task was under way."""


class TaskDiedError(RuntimeError):
    """The process of a task ended without a result, with the exit ``code``."""

    def __init__(self, function: str, code: int | None) -> None:
        super().__init__(f"the process that ran {function} ended with code {code}")
        self.code = code


def run_task(
    function: Callable[..., T], *arguments: Any, stopped: threading.Event | None = None
) -> T:
    """Run ``function(*arguments)`` in a fresh process and return its result.

    Raises what the function raised if that is a :class:`KernelassayError`, ``RuntimeError`` with
    the text of any other error, :class:`TaskDiedError` if the process dies,
    :class:`TaskStoppedError` once ``stopped`` is set.
    """
    ours, theirs = context().Pipe(duplex=False)
    # Not a daemon: it has compilers as children.
    process = context().Process(target=_serve, args=(theirs, function, arguments), daemon=False)
    process.start()
    theirs.close()
    try:
        while not ours.poll(POLL_SECONDS):
            if stopped is not None and stopped.is_set():
                raise TaskStoppedError
        kind, value = ours.recv()
    except EOFError:
        process.join()
        raise TaskDiedError(function.__name__, process.exitcode) from None
    finally:
        ours.close()
        if process.pid is not None and process.is_alive():
            with contextlib.suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)
        process.join()
    if kind == "error":
        raise value if isinstance(value, KernelassayError) else RuntimeError(value)
    result: T = value
    return result


def collect_rarely() -> None:
    """Make this process look for garbage in cycles less often; for work on many small values.

    Tokens and syntax nodes live long and make no cycles, yet looking through them again and again
    takes half the time of telling mutants apart.
    """
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


def _serve(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator ends tasks itself
    collect_rarely()
    try:
        pipe.send(("result", function(*arguments)))
    except KernelassayError as error:
        pipe.send(("error", error))
    except Exception as error:
        import traceback

        traceback.print_exc()
        pipe.send(("error", f"{type(error).__name__}: {error}"))
