"""Compiler workers for many batches: used again, and never more at work than there are cores.

Starting a worker takes longer than compiling a kernel, so a process keeps those it has started.
Several processes compile at a time, each for a problem of its own, and none knows how many others
there are: each would use all cores while it is alone, and its share while it is not. So every batch
takes a *slot*, a locked file in a folder that they share; the system frees those of a dead process.

Problems that have a kernel in common are often prepared at one time. So a piece of work with a name
is *claimed*, by another locked file: who finds it taken does the rest first, and then finds in the
cache what the other one made of it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Generic, TypeVar, cast

from kernelassay.compile.worker import Worker
from kernelassay.errors import ToolchainError

W = TypeVar("W", bound=Worker)
T = TypeVar("T")
R = TypeVar("R")
POLL_SECONDS = 0.02
CLAIM_BYTES = 2
"""Of the digest that names a claim's file: few files, and two names rarely share one."""
SLOTS = "compiler-slots"
"""The folder in a cache whose locks bound how many compilers work at a time."""

_lock = threading.Lock()
# By process, as a forked one must not use its parent's, and by kind.
_idle: dict[tuple[int, type[Worker]], list[Worker]] = {}


class Pool(Generic[W]):
    """At most ``jobs`` compilations at a time, on as many workers of one ``kind``.

    ``slots`` is a folder shared with other processes, None for no limit but ``jobs``; ``count`` is
    how many slots it has (None: the cores that this process may use).
    """

    def __init__(
        self, kind: type[W], jobs: int = 1, slots: Path | None = None, count: int | None = None
    ) -> None:
        self._kind = kind
        self._jobs = max(1, jobs)
        self._slots = slots
        self._count = count or len(os.sched_getaffinity(0))
        self._busy: set[W] = set()
        self._stopped = False

    def one(self, function: Callable[[W, T], R], item: T) -> R:
        """``function`` of a worker and an item, once there is a slot."""
        with slot(self._slots, self._count):
            worker = _borrow(self._kind)
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

    def run(
        self,
        function: Callable[[W, T], R],
        items: Sequence[T],
        name: Callable[[T], str] | None = None,
    ) -> Iterator[R]:
        """``function`` of a worker and each item, as they are done.

        An item whose ``name`` is being worked on, by whoever has the same folder of slots, comes
        last, when that is over: ``function`` looks itself whether anything is left to do.
        If it raises, or the caller stops, compilations under way are ended.
        """
        put_off: list[T] = []
        for item, made in self._round(function, items, name, wait=False):
            if made is None:
                put_off.append(item)
            else:
                yield made[0]
        for _, made in self._round(function, put_off, name, wait=True):
            assert made is not None
            yield made[0]

    def _round(
        self,
        function: Callable[[W, T], R],
        items: Sequence[T],
        name: Callable[[T], str] | None,
        wait: bool,
    ) -> Iterator[tuple[T, tuple[R] | None]]:
        """Each item with its result, or None where another has claimed it."""

        def turn(item: T) -> tuple[R] | None:
            with self._claim("" if name is None else name(item), wait) as mine:
                return (self.one(function, item),) if mine else None

        if self._jobs == 1 or len(items) <= 1:
            for item in items:
                yield item, turn(item)
            return
        with ThreadPoolExecutor(self._jobs) as pool:
            futures = {pool.submit(turn, item): item for item in items}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            except BaseException:
                for future in futures:
                    future.cancel()
                with _lock:
                    self._stopped = True
                    for worker in self._busy:
                        worker.stop()
                raise

    @contextlib.contextmanager
    def _claim(self, name: str, wait: bool) -> Iterator[bool]:
        """Hold the work of this name; whether it is ours, which ``wait`` waits for."""
        if self._slots is None or not name:
            yield True
            return
        digest = hashlib.blake2b(name.encode(), digest_size=CLAIM_BYTES).hexdigest()
        place = _folder(self._slots) / f"claim-{digest}"
        while True:
            handle = _locked(place)
            if handle is not None or not wait:
                break
            if self._stopped:
                raise ToolchainError("the compilation was stopped")
            time.sleep(POLL_SECONDS)
        try:
            yield handle is not None
        finally:
            if handle is not None:
                os.close(handle)


class WorkerPool(Pool[Worker]):
    """A pool of NVRTC workers."""

    def __init__(self, jobs: int = 1, slots: Path | None = None, count: int | None = None) -> None:
        super().__init__(Worker, jobs, slots, count)


@contextlib.contextmanager
def slot(folder: Path | None, count: int) -> Iterator[None]:
    """Hold one of ``count`` slots in ``folder``; waits while all are taken."""
    if folder is None:
        yield
        return
    handle = _taken(_folder(folder), count)
    try:
        yield
    finally:
        os.close(handle)  # which unlocks it


def _taken(folder: Path, count: int) -> int:
    first = threading.get_ident() >> 12
    while True:
        for offset in range(count):
            handle = _locked(folder / f"{(first + offset) % count:03d}")
            if handle is not None:
                return handle
        time.sleep(POLL_SECONDS)


def _folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _locked(place: Path) -> int | None:
    """A handle that locks the file at ``place`` until it is closed; None if another has one."""
    try:
        handle = os.open(place, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        raise ToolchainError(
            f"the folder of compiler slots cannot be used: {error.strerror}",
            where=str(place.parent),
            hint="name another folder for images",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:  # a file system without locks: nothing limits
        pass
    return handle


def _borrow(kind: type[W]) -> W:
    with _lock:
        idle = _idle.setdefault((os.getpid(), kind), [])
        return cast(W, idle.pop()) if idle else kind()


def _give_back(worker: Worker) -> None:
    if worker.stopped:
        worker.close()
        return
    with _lock:
        _idle.setdefault((os.getpid(), type(worker)), []).append(worker)


@atexit.register
def close_idle() -> None:
    """End the workers that this process keeps."""
    with _lock:
        own = [key for key in _idle if key[0] == os.getpid()]
        idle = [worker for key in own for worker in _idle.pop(key)]
    for worker in idle:
        worker.close()
