"""Which fences the driver of a device bears.

A driver opens files, maps memory and asks for its own process in ways that differ by version and
machine; behind some fences it does not start. So it is tried, in a child for each: the strongest
that it bears are raised, and who is behind them is told which those are.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from kernelassay.execute.confinement import (
    ALL_NAMESPACES,
    NO_PROCESSES,
    NO_USERS,
    Fences,
    confine_files,
    python_folders,
    unshare,
)

SECONDS = 30.0
NAMESPACES = (ALL_NAMESPACES, NO_PROCESSES, NO_USERS, 0)
OPEN = ((), ("/proc",), ("/dev",), ("/proc", "/dev"), ("/proc", "/dev", "/run", "/var", "/tmp"))
"""Folders that may stay writable, the fewest first."""


def bearable(starts: Callable[[], object]) -> Fences:
    """The strongest fences behind which ``starts`` returns and does not raise.

    The calling process must have one thread, and must not have started the device.
    """
    files = (Fences(0, True, folders) for folders in OPEN)
    inside = _first((*files, Fences(0, False)), starts)
    around = (Fences(flags, inside.files, inside.open) for flags in NAMESPACES)
    return _first(around, starts)


def cuda_starts() -> None:
    """Start CUDA on the first device that is visible."""
    import torch

    torch.zeros(1, device="cuda").item()


def _first(among: Iterable[Fences], starts: Callable[[], object]) -> Fences:
    """The first that ``starts`` bears; the last if it bears none."""
    fences = Fences(0, False)
    with tempfile.TemporaryDirectory(prefix="kernelassay-fences-") as scratch:
        for fences in among:
            if _bears(fences, starts, scratch):
                break
    return fences


def _bears(fences: Fences, starts: Callable[[], object], scratch: str) -> bool:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            unshare(fences.namespaces)
            if os.fork() == 0:
                _try(fences, starts, scratch, tell)
        finally:  # whatever is raised here is not for whoever called the parent
            os._exit(0)
    os.close(tell)
    try:
        return _answer(told) == b"+"
    finally:
        os.close(told)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with suppress(ChildProcessError):  # where children are reaped for their parent
            os.waitpid(child, 0)


def _try(fences: Fences, starts: Callable[[], object], scratch: str, tell: int) -> None:
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if fences.files:
            os.chdir(scratch)
            os.environ["HOME"] = os.environ["TMPDIR"] = scratch
            tempfile.tempdir = None
            writable = [Path(path) for path in (scratch, *fences.open)]
            packages = [Path(path).resolve() for path in sys.path if path]
            confine_files((*python_folders(), *packages), writable, [])
        starts()
        os.write(tell, b"+")
    finally:
        os._exit(0)


def _answer(told: int) -> bytes:
    """What a child tells before it ends, or the time is over."""
    ready, _, _ = select.select([told], [], [], SECONDS)
    return os.read(told, 1) if ready else b""
