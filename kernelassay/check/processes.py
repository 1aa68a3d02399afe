"""The processes of a check: all are forked from one that has torch and knows no problem."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from functools import cache
from multiprocessing import reduction
from multiprocessing.context import ForkServerContext
from typing import Any

from kernelassay.execute.confinement import Fences, Limits

_PRELOADED = ("kernelassay.check.warm",)
_context: ForkServerContext | None = None


def context() -> ForkServerContext:
    """The process context whose fork server has torch and both ends of a check loaded.

    A fork server that runs already, for other work of ours, does as well: it only lacks imports.
    """
    global _context  # noqa: PLW0603 - one fork server per process
    if _context is None:
        _context = multiprocessing.get_context("forkserver")
        _context.set_forkserver_preload(list(_PRELOADED))
    return _context


class Descriptor:
    """An open file that goes along to a process."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self.number),)


def _received(sent: Any) -> Descriptor:
    return Descriptor(sent.detach())


@dataclass(frozen=True, slots=True)
class Job:
    """A candidate and its surroundings.

    ``folder`` is all it can write; the inputs lie in ``region``, of ``region_bytes``.
    ``hidden`` are paths it must not read, wherever they lie.
    """

    source: str
    entry: str
    folder: str
    region: Descriptor
    region_bytes: int
    hidden: tuple[str, ...]
    limits: Limits
    device: str
    fences: Fences


@cache
def fences_for(device: str) -> Fences:
    """The fences of candidates on a device: all of them, or those that its driver bears."""
    if device == "cpu":
        return Fences()
    told, tell = context().Pipe(duplex=False)
    process = context().Process(target=_tell_fences, args=(tell,))
    process.start()
    tell.close()
    try:
        found: Fences = told.recv()
    except EOFError:
        found = Fences(0, False)
    process.join()
    return found


def _tell_fences(tell: Any) -> None:
    from kernelassay.execute.bearing import bearable, cuda_starts

    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # what all our processes start from hides devices
    tell.send(bearable(cuda_starts))


def run_candidate(*arguments: Any) -> None:
    """:func:`candidate.supervise`, which only the processes need to have imported."""
    from kernelassay.check.candidate import supervise

    supervise(*arguments)


def run_referee(*arguments: Any) -> None:
    """:func:`referee.serve`, likewise."""
    from kernelassay.check.referee import serve

    serve(*arguments)


def run_kernel(*arguments: Any) -> None:
    """:func:`kernels.serve`, likewise."""
    from kernelassay.check.kernels import serve

    serve(*arguments)
