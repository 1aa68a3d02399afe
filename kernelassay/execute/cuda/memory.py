"""Room on a device that several processes share: who needs much of it waits for its turn."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

LITTLE_BYTES = 1 << 30
"""Up to here nobody waits: what other processes hold leaves that much."""
MARGIN_BYTES = 4 << 30
PATIENCE_SECONDS = 120.0
"""After so long it is tried anyway; if it fails, the input says so."""
_POLL_SECONDS = 0.05


@contextmanager
def room(lock: Path, need: int) -> Iterator[None]:
    """Within, about ``need`` bytes may be taken from the device of this process.

    One process at a time takes much, and it waits until there is so much; what it has then is held
    as long as it likes. ``lock`` is a file that belongs to the device.
    """
    if need <= LITTLE_BYTES:
        yield
        return
    with lock.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while _free() < need + MARGIN_BYTES and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        yield


def _free() -> int:
    free, _ = torch.cuda.mem_get_info()
    return int(free)
