"""Compiler workers for many batches: used again, and never more at work than there are cores.

Starting a worker takes longer than compiling a kernel, so a process keeps those it has started.
Several processes compile at a time, each for a problem of its own, and none knows how many others
there are: each would use all cores while it is alone, and its share while it is not. So every batch
takes a *slot*, a locked file in a folder that they share; the system frees those of a dead process.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TypeVar

from kernelassay.compile.worker import Worker
from kernelassay.errors import ToolchainError

T = TypeVar("T")
R = TypeVar("R")
POLL_SECONDS = 0.02
SLOTS = "compiler-slots"
"""The folder in a cache whose locks bound how many compilers work at a time."""

_lock = threading.Lock()
_idle: dict[int, list[Worker]] = {}  # by process: a forked one must not use its parent's


class WorkerPool:
    """At most ``jobs`` compilations at a time, on as many workers.

    ``slots`` is a folder shared with other processes, None for no limit but ``jobs``; ``count`` is
    how many slots it has (None: the cores that this process may use).
    """

    def __init__(self, jobs: int = 1, slots: Path | None = None, count: int | None = None) -> None:
        self._jobs = max(1, jobs)
        self._slots = slots
        self._count = count or len(os.sched_getaffinity(0))
        self._busy: set[Worker] = set()
        self._stopped = False

    def one(self, function: Callable[[Worker, T], R], item: T) -> R:
        """``function`` of a worker and an item, once there is a slot."""
        with slot(self._slots, self._count):
            worker = _borrow()
            with _lock:
                self._busy.add(worker)
                if self._stopped:
                    worker.stop()
            try:
                return function(worker, item)
            finally:
                with _lock:
                    self._busy.discard(worker)
                _give_back(worker)

    def run(self, function: Callable[[Worker, T], R], items: Sequence[T]) -> Iterator[R]:
        """``function`` of a worker and each item, as they are done.

        If it raises, or the caller stops, compilations under way are ended.
        """
        if self._jobs == 1 or len(items) <= 1:
            for item in items:
                yield self.one(function, item)
            return
        with ThreadPoolExecutor(self._jobs) as pool:
            futures = [pool.submit(self.one, function, item) for item in items]
            try:
                for future in as_completed(futures):
                    yield future.result()
            except BaseException:
                for future in futures:
                    future.cancel()
                with _lock:
                    self._stopped = True
                    for worker in self._busy:
                        worker.stop()
                raise


@contextlib.contextmanager
def slot(folder: Path | None, count: int) -> Iterator[None]:
    """Hold one of ``count`` slots in ``folder``; waits while all are taken."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    handle = _taken(folder, count)
    try:
        yield
    finally:
        os.close(handle)  # which unlocks it


def _taken(folder: Path, count: int) -> int:
    first = threading.get_ident() >> 12
    while True:
        for offset in range(count):
            place = folder / f"{(first + offset) % count:03d}"
            try:
                handle = os.open(place, os.O_CREAT | os.O_RDWR, 0o666)
            except OSError as error:
                raise ToolchainError(
                    f"the folder of compiler slots cannot be used: {error.strerror}",
                    where=str(folder),
                    hint="name another folder for images",
                ) from error
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            except BlockingIOError:
                os.close(handle)
            except OSError:  # a file system without locks: nothing limits
                return handle
        time.sleep(POLL_SECONDS)


def _borrow() -> Worker:
    with _lock:
        idle = _idle.setdefault(os.getpid(), [])
        return idle.pop() if idle else Worker()


def _give_back(worker: Worker) -> None:
    if worker.stopped:
        worker.close()
        return
    with _lock:
        _idle.setdefault(os.getpid(), []).append(worker)


@atexit.register
def close_idle() -> None:
    """End the workers that this process keeps."""
    with _lock:
        idle = _idle.pop(os.getpid(), [])
    for worker in idle:
        worker.close()
