"""What a process does that stands between a worker and who asked for it."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

_DESCRIPTORS = 1 << 20


def watched(pid: int, control: int) -> int:
    """Wait for a child's end, or end it when ``control`` closes; its code, -n for signal n."""
    end = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([end, control], [], [])
        if end not in ready:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(end)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def signal_name(number: int) -> str:
    """A signal's name; those between SIGRTMIN and SIGRTMAX have none of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def end_descendants() -> None:
    """End all that is left, of a process that adopts orphans: none escapes by a new session."""
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            return
        if not children:
            return
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def close_all_but(*kept: int) -> None:
    """Leave open the standard streams and ``kept``."""
    low = 3
    for descriptor in (*sorted(kept), _DESCRIPTORS):
        os.closerange(low, descriptor)
        low = descriptor + 1
