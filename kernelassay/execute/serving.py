"""The inside of a worker process: it loads a problem, settles its inputs, runs candidates."""

from __future__ import annotations

import gc
import os
import resource
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from kernelassay.errors import KernelassayError, ProblemError
from kernelassay.execute.messages import (
    Arguments,
    Battery,
    Beat,
    CallInfo,
    Open,
    Trials,
)

if TYPE_CHECKING:
    from kernelassay.compile.fixed import Sizes
    from kernelassay.execute.toolbox import Workbench
    from kernelassay.input_trials import Settled

MEMORY_BYTES = 12 << 30


def serve(pipe: Connection) -> None:
    """The main loop of a worker process."""
    gc.freeze()  # what was imported stays: no collection of garbage looks through it again
    restrict()
    workbench: Workbench | None = None
    while True:
        try:
            request = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            if isinstance(request, Open):
                if workbench is not None:
                    workbench.close()
                workbench = None
                workbench = request.tools.open(request.problem, lambda: pipe.send(Beat()))
                pipe.send(call_infos(workbench.bench))
                continue
            assert workbench is not None
            bench = workbench.bench
            if isinstance(request, Battery):
                settled = _settled(bench, request)
                workbench.expect(settled.specs)
                pipe.send(Trials(settled.specs, tuple(tried(bench, settled))))
            else:
                for reply in workbench.measure(request):
                    pipe.send(reply)
        except KernelassayError as error:
            pipe.send(error)
        except Exception as error:  # problem code raises whatever it likes
            where = workbench.bench.problem.id if workbench is not None else _name(request)
            pipe.send(ProblemError(f"{type(error).__name__}: {error}"[:2000], where=where))


def _settled(bench: Any, request: Battery) -> Settled:
    from kernelassay.input_trials import settle, settle_official

    if request.small is None:
        return settle(bench.problem, request.size, bench.signature, request.kinds)
    return settle_official(
        bench.problem, request.small, request.size, bench.signature, request.kinds
    )


def tried(bench: Any, settled: Settled) -> Iterator[tuple[Sizes, Arguments]]:
    """Free sizes, and the arguments of all calls that follow: first where the moves start.

    What else tells small sizes from the problem's own (a literal, a frozen size) counts as a free
    size that is never moved alone.
    """
    from kernelassay.problem import literals

    problem = bench.problem
    own = {lever.name: lever.value for lever in problem.sizes if lever.name not in settled.frozen}
    if settled.base:
        values = {x.name: x.value for x in (*problem.levers, *literals(problem))}
        own |= {name: values[name] for name, _ in settled.base}
    shapes = [settled.base, *settled.moves, *(spec.overrides for spec in settled.specs)]
    for moved in dict.fromkeys(shapes):
        yield own | dict(moved), bench.arguments(moved)


def _name(request: Any) -> str:
    return request.problem.id if isinstance(request, Open) else "worker"


def call_infos(bench: Any) -> tuple[CallInfo, ...]:
    """What of a bench's calls leaves the worker."""
    from kernelassay.substrate.lowering import is_getitem

    nodes = bench.traced.nodes
    return tuple(
        CallInfo(
            c.id,
            c.template,
            dict(c.sources),
            c.nodes,
            tuple(str(nodes[name].target) for name in c.nodes if not is_getitem(nodes[name])),
            dict(c.fixed),
        )
        for c in bench.calls
    )


def restrict() -> None:
    """Bound what problem code and kernels can take; keep their output off the terminal."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator ends workers itself
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Soft, since CUDA's own mappings count: a child that starts CUDA lifts it.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, hard))
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    os.close(quiet)
