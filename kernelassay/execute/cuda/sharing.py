"""What processes that share a device take in turns: room for much memory, and the device itself.

Small kernels of several contexts do not run side by side: the device switches between them, which
takes longer than they do. Turns are locks on files, which end with the process that holds them.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

LITTLE_BYTES = 1 << 30
"""Up to here nobody waits: what other processes hold leaves that much."""
MARGIN_BYTES = 4 << 30
STUCK_SECONDS = 120.0
"""When nobody runs and nothing has been given back for so long: it is tried as it is."""
BEAT_SECONDS = 5.0
_POLL_SECONDS = 0.05


RUNNERS = 2
"""Processes that run kernels at a time: while one of them works in Python, the other's run."""


@contextmanager
def turn(locks: Sequence[Path], beat: Callable[[], None]) -> Iterator[None]:
    """Within, this process is one of those that run kernels; there are as many as ``locks``.

    ``beat`` is called every few seconds while it waits.
    """
    ticks = _ticks(beat)
    with ExitStack() as stack:
        files = [stack.enter_context(lock.open("a")) for lock in locks]
        while not any(_taken(file.fileno()) for file in files):
            next(ticks)
        yield


@contextmanager
def room(
    lock: Path,
    need: int,
    free: Callable[[], int],
    busy: Callable[[], bool],
    beat: Callable[[], None],
) -> Iterator[None]:
    """Within, about ``need`` bytes may be taken from a device of which ``free()`` are left.

    One process at a time takes much, and it waits until there is so much; what it has then is held
    as long as it likes. ``lock`` is a file that belongs to the device. ``busy`` tells whether
    others run kernels, and so will give memory back. ``beat`` is called every few seconds while it
    waits.
    """
    if need <= LITTLE_BYTES:
        yield
        return
    ticks = _ticks(beat)
    with lock.open("a") as handle:
        while not _taken(handle.fileno()):
            next(ticks)
        best, since = free(), time.monotonic()
        while best < need + MARGIN_BYTES and time.monotonic() - since < STUCK_SECONDS:
            next(ticks)
            now = free()
            if now > best or busy():
                best, since = max(best, now), time.monotonic()
        yield


def occupied(locks: Sequence[Path]) -> bool:
    """Whether another process has one of the turns."""
    with ExitStack() as stack:
        files = [stack.enter_context(lock.open("a")) for lock in locks]
        return not all(_taken(file.fileno()) for file in files)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ticks(beat: Callable[[], None]) -> Iterator[None]:
    last = time.monotonic()
    while True:
        time.sleep(_POLL_SECONDS)
        if time.monotonic() - last > BEAT_SECONDS:
            last = time.monotonic()
            beat()
        yield
