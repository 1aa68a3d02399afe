"""What processes that share a device divide among them: its memory, and turns to run kernels.

Both are locks on files, which end with the process that holds them, whatever becomes of it.

Memory is handed out in shares, by what an input is estimated to need, and not by what the device
says is free: that changes between the look and the use. Kernels take turns, since several contexts
do not run side by side: the device switches between them, which takes longer than small kernels do.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kernelassay.session import slug

SHARES = 64
"""What a device's memory is divided into."""
RUNNERS = 2
"""Processes that run kernels at a time: while one of them works in Python, the other's run."""

CONTEXT_BYTES = 3 << 29
"""What a lane takes for itself: a context with libraries, and another one that stands by."""
_KEPT_SHARE = 0.05
"""The share of a lane's part of the memory that inputs may hold which are not in use."""

BEAT_SECONDS = 5.0
_POLL_SECONDS = 0.02

Beat = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Locks:
    """The files that processes of one device share it by, whatever session they are of."""

    door: Path
    shares: tuple[Path, ...]
    heavy: tuple[Path, ...]
    light: tuple[Path, ...]

    @classmethod
    def of(cls, gpu: str) -> Locks:
        """Those of a device, named as in ``CUDA_VISIBLE_DEVICES``."""
        own = Path(tempfile.gettempdir()) / f"kernelassay-{os.getuid()}"
        folder = own / slug(f"device-{gpu}")
        for made in (own, folder):  # not as parents: those would be open to others
            made.mkdir(mode=0o700, exist_ok=True)

        def several(name: str, count: int) -> tuple[Path, ...]:
            return tuple(folder / f"{name}-{number}.lock" for number in range(count))

        shares = several("share", SHARES)
        heavy, light = several("heavy", RUNNERS), several("light", RUNNERS)
        return cls(folder / "door.lock", shares, heavy, light)


def kept_bytes(total: int, lanes: int) -> int:
    """What a lane's inputs may hold while they are not in use, of a device of ``total`` bytes."""
    return int(_KEPT_SHARE * total / max(1, lanes))


def shares_of(need: int, total: int, lanes: int) -> int:
    """The shares of a device of ``total`` bytes that an input takes; none for a small one.

    ``need`` is in bytes. What ``lanes`` hold for themselves and keep is not shared out.
    """
    kept = kept_bytes(total, lanes)
    if need <= kept:
        return 0
    shared = total - lanes * (CONTEXT_BYTES + 2 * kept)
    return SHARES if need >= shared else -(-need * SHARES // shared)


class Room:
    """The part of a device's memory that this process has."""

    def __init__(self, locks: Locks) -> None:
        self._locks = locks
        self._held: list[IO[str]] = []

    @property
    def held(self) -> int:
        """How many shares it has."""
        return len(self._held)

    def take(self, count: int, beat: Beat) -> None:
        """Have ``count`` shares in place of those held, once there are so many.

        Who comes first is served first, so that much is not passed by for ever by little. What was
        held is given back before, or two that want more would wait for each other. ``beat`` is
        called every few seconds while it waits.
        """
        self.leave()
        if not count:
            return
        ticks = _ticks(beat)
        with self._locks.door.open("a") as door:
            try:
                while not _taken(door):
                    next(ticks)
                left = list(self._locks.shares)
                while self.held < count:
                    left = [path for path in left if self.held == count or not self._hold(path)]
                    if self.held < count:
                        next(ticks)
            except BaseException:
                self.leave()
                raise
            finally:
                _free(door)

    def leave(self) -> None:
        """Give all of it back."""
        while self._held:
            # Not by closing alone: a process forked meanwhile has the file open, too.
            handle = self._held.pop()
            _free(handle)
            handle.close()

    def _hold(self, path: Path) -> bool:
        handle = path.open("a")
        if _taken(handle):
            self._held.append(handle)
            return True
        handle.close()
        return False


@contextmanager
def turn(locks: Sequence[Path], beat: Beat) -> Iterator[None]:
    """Within, this process is one of those that run kernels; there are as many as ``locks``.

    ``beat`` is called every few seconds while it waits.
    """
    ticks = _ticks(beat)
    with ExitStack() as stack:
        files = [stack.enter_context(lock.open("a")) for lock in locks]
        while not any(map(_taken, files)):
            next(ticks)
        yield


def _taken(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _free(file: IO[str]) -> None:
    fcntl.flock(file, fcntl.LOCK_UN)


def _ticks(beat: Beat) -> Iterator[None]:
    last = time.monotonic()
    while True:
        time.sleep(_POLL_SECONDS)
        if time.monotonic() - last > BEAT_SECONDS:
            last = time.monotonic()
            beat()
        yield
