"""The inside of a worker process: it loads a problem, settles its inputs, runs candidates."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from kernelassay import cell
from kernelassay.errors import KernelassayError, ProblemError
from kernelassay.execute.messages import (
    Arguments,
    Battery,
    CallInfo,
    Measure,
    Open,
    Prepared,
    Trials,
    without_output,
)
from kernelassay.timing import Timing

if TYPE_CHECKING:
    from kernelassay.compile.fixed import Sizes
    from kernelassay.input_trials import Settled

MEMORY_BYTES = 12 << 30


def serve(pipe: Connection) -> None:
    """The main loop of a worker process."""
    from kernelassay.execute import bench as benches
    from kernelassay.input_trials import settle

    _restrict()
    bench: benches.ProblemBench | None = None
    while True:
        try:
            request = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            if isinstance(request, Open):
                if bench is not None and bench.device is not None:
                    bench.device.close()
                bench = None
                bench = _open(request)
                pipe.send(_call_infos(bench))
                continue
            assert bench is not None
            if isinstance(request, Battery):
                settled = settle(bench.problem, request.size, bench.signature)
                pipe.send(Trials(settled.specs, tuple(tried(bench, settled))))
            else:
                for reply in _measure(bench, request):
                    pipe.send(reply)
        except KernelassayError as error:
            pipe.send(error)
        except Exception as error:  # problem code raises whatever it likes
            where = bench.problem.id if bench is not None else _name(request)
            pipe.send(ProblemError(f"{type(error).__name__}: {error}"[:2000], where=where))


def tried(bench: Any, settled: Settled) -> Iterator[tuple[Sizes, Arguments]]:
    """Free sizes, and the arguments of all calls that follow from them; the problem's own first."""
    levers = (lever for lever in bench.problem.sizes if lever.name not in settled.frozen)
    own = {lever.name: lever.value for lever in levers}
    shapes = [(), *settled.moves, *(spec.overrides for spec in settled.specs)]
    for moved in dict.fromkeys(shapes):
        yield own | dict(moved), bench.arguments(moved)


def _name(request: Any) -> str:
    return request.problem.id if isinstance(request, Open) else "worker"


def _open(request: Open) -> Any:
    from kernelassay.execute.bench import ProblemBench
    from kernelassay.execute.cpu.device import CpuDevice

    return ProblemBench(request.problem, CpuDevice(request.runtime))


def _call_infos(bench: Any) -> tuple[CallInfo, ...]:
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


def _measure(bench: Any, request: Measure) -> Iterable[Any]:
    from dataclasses import replace

    from kernelassay.execute.bench import InputBench
    from kernelassay.execute.outputs import order_finding, other_order

    start = time.perf_counter()
    prepared = InputBench(bench, request.spec)
    facts = prepared.facts()
    ready = time.perf_counter()
    yield facts
    if not facts.finite:
        return
    try:
        begun = time.perf_counter()
        cells = [*prepared.prepare(request.originals).values(), *prepared.controls()]
        fixed = time.perf_counter() - begun
        yield Prepared(cells, Timing(ready - start, fixed, prepared.kernel_seconds))
        for candidate in request.candidates:
            start = time.perf_counter()
            try:
                result = prepared.run(candidate)
                if request.check_order:
                    usual = request.spec.order
                    order = other_order(usual)
                    other = prepared.run(candidate, order=order)
                    finding = order_finding(result, other, usual, order)
                    if finding is not None:
                        result = replace(result, findings=(*result.findings, finding))
            except KernelassayError as error:
                result = without_output(candidate, request.spec, cell.INFRASTRUCTURE, str(error))
            yield result, time.perf_counter() - start
    finally:
        prepared.close()


def _restrict() -> None:
    """Bound what problem code and kernels can take; keep their output off the terminal."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator ends workers itself
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    os.close(quiet)
