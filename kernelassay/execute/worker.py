"""Worker processes: problem code and kernels run here, and only plain values come back.

Workers are forked from a fork server that has imported torch, so that a replacement costs
milliseconds. A worker that dies or hangs takes down only the candidate in flight: that one is
tried once more in a fresh worker, and a second death is its outcome.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelassay import cell
from kernelassay.cell import Cell
from kernelassay.compile.fixed import Fixed
from kernelassay.errors import KernelassayError, ProblemError
from kernelassay.inputs import InputSpec
from kernelassay.kernel import Scalar
from kernelassay.problem import Problem

if TYPE_CHECKING:
    from kernelassay.execute.bench import Candidate, InputFacts

MEMORY_BYTES = 12 << 30
OPEN_SECONDS = 240.0
INPUT_SECONDS = 240.0
CANDIDATE_SECONDS = 150.0
"""Twice the device's own backstop and more: only a worker that is stuck outlasts it."""


Arguments = Mapping[str, Mapping[str, Scalar]]
"""The scalar arguments of all calls at some sizes, by the calls' ids and the parameters' names."""


@dataclass(frozen=True, slots=True)
class CallInfo:
    """The part of a call that leaves the worker; ``ops`` are the overloads it stands in for.

    ``fixed`` is as in :mod:`kernelassay.compile.fixed`.
    """

    id: str
    template: str
    sources: Mapping[str, str]
    nodes: tuple[str, ...]
    ops: tuple[str, ...] = ()
    fixed: Fixed = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trials:
    """The inputs of a problem, and the arguments of all calls at other sizes it takes.

    ``moved`` has them when one size moves alone, for each that can; ``odd`` where every size that
    can move is odd.
    """

    specs: tuple[InputSpec, ...]
    moved: tuple[Arguments, ...]
    odd: tuple[Arguments, ...]


@dataclass(frozen=True, slots=True)
class Open:
    """Load, trace and lower a problem; the reply is a tuple of :class:`CallInfo`."""

    problem: Problem
    runtime: Path


@dataclass(frozen=True, slots=True)
class Battery:
    """Settle the inputs of the open problem; the reply is as of :meth:`Worker.battery`."""

    size: str


@dataclass(frozen=True, slots=True)
class Measure:
    """Run candidates on one input of the open problem.

    The replies are the input's facts, the originals' and controls' cells, then one cell per
    candidate in order.
    """

    spec: InputSpec
    originals: Mapping[str, Candidate]
    candidates: tuple[Candidate, ...]
    check_order: bool


@dataclass(slots=True)
class UnitResult:
    """What one unit of work (a problem on one input) yielded.

    ``rejected`` says why the input cannot be used; ``broken`` that a correct kernel did not end
    on it. ``fixed`` holds the cells of originals and controls.
    """

    facts: InputFacts | None = None
    rejected: str = ""
    broken: bool = False
    fixed: list[Cell] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)


class WorkerDiedError(Exception):
    """A worker ended or went ``silent``; ``reason`` names the signal or the time limit."""

    def __init__(self, reason: str, *, silent: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.silent = silent


_context: ForkServerContext | None = None
# What processes of ours start with; named, since half of it lies in layers above this one.
_PRELOADED = (
    "kernelassay.execute.warm",
    "kernelassay.execute.bench",
    "kernelassay.population",
    "kernelassay.input_trials",
)


def context() -> ForkServerContext:
    """The process context whose fork server has torch, and what tasks and workers run, loaded."""
    global _context  # noqa: PLW0603 - one fork server per process
    if _context is None:
        import multiprocessing

        _context = multiprocessing.get_context("forkserver")
        _context.set_forkserver_preload(list(_PRELOADED))
    return _context


class Worker:
    """A handle on one worker process that is replaced when it dies."""

    def __init__(self, runtime: Path) -> None:
        self._runtime = runtime
        self._process: ForkServerProcess | None = None
        self._pipe: Connection | None = None
        self._problem: Problem | None = None
        self._stopped = False

    def open(self, problem: Problem) -> tuple[CallInfo, ...]:
        """Load a problem. Raises :class:`ProblemError` or :class:`UnsupportedError`."""
        self._problem = problem
        for attempt in (1, 2):
            try:
                self._send(Open(problem, self._runtime))
                reply: tuple[CallInfo, ...] = self._receive(OPEN_SECONDS)
                return reply
            except WorkerDiedError as death:
                # Somebody else's kill -9 must not cost a problem; a file that loops does.
                if attempt == 2 or death.silent:
                    raise ProblemError(
                        f"the worker that loaded the problem ended: {death.reason}",
                        where=problem.id,
                        hint="does the file loop for ever, exit, or allocate too much?",
                    ) from None
        raise AssertionError("unreachable")

    def battery(self, size: str) -> Trials:
        """The inputs of the open problem, with shapes that run and stay small.

        ``size`` is one of ``inputs.BATTERIES``.
        """
        for attempt in (1, 2):
            try:
                self._reopen()
                self._send(Battery(size))
                found: Trials = self._receive(OPEN_SECONDS)
                return found
            except WorkerDiedError as death:
                if attempt == 2 or death.silent:
                    where = self._problem.id if self._problem else ""
                    what = f"the worker that tried its shapes ended: {death.reason}"
                    raise ProblemError(what, where=where) from None
        raise AssertionError("unreachable")

    def measure(
        self,
        spec: InputSpec,
        originals: Mapping[str, Candidate],
        candidates: Sequence[Candidate],
        *,
        check_order: bool = False,
        on_cell: Callable[[int], None] = lambda _: None,
    ) -> UnitResult:
        """Run candidates on one input, surviving whatever they do to the worker."""
        result = UnitResult()
        retried: set[str] = set()
        pending = list(candidates)
        failures = 0
        while True:
            done = len(result.cells)
            try:
                # A replaced worker measures originals and controls anew.
                result.facts, result.fixed = None, []
                self._reopen()
                self._send(Measure(spec, originals, tuple(pending), check_order))
                self._collect(result, len(pending), on_cell)
                return result
            except WorkerDiedError as death:
                received = len(result.cells) - done
                if not result.fixed or not pending:
                    failures += 1
                    if failures > 1:
                        result.rejected = f"the worker ended: {death.reason}"
                        return result
                    continue
                pending = pending[received:]
                if not pending:
                    return result
                if pending[0].id in retried:
                    result.cells.append(_death(pending.pop(0), spec, death))
                    on_cell(1)
                    if not pending:
                        return result
                else:
                    retried.add(pending[0].id)
            except KernelassayError as error:
                result.rejected = str(error)
                result.broken = result.facts is not None and isinstance(error, ProblemError)
                return result

    def _collect(self, result: UnitResult, count: int, on_cell: Callable[[int], None]) -> None:
        result.facts = self._receive(INPUT_SECONDS)
        if result.facts is not None and not result.facts.finite:
            result.rejected = result.facts.problem
            return
        result.fixed = self._receive(INPUT_SECONDS)
        for _ in range(count):
            result.cells.append(self._receive(CANDIDATE_SECONDS))
            on_cell(1)

    def _reopen(self) -> None:
        if self._process is None and self._problem is not None:
            self.open(self._problem)

    def close(self) -> None:
        """End the process at once."""
        process, self._process = self._process, None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if process is not None and process.pid is not None:
            with contextlib.suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)
            process.join(10)

    def stop(self) -> None:
        """End the process and start no other; may be called from another thread."""
        self._stopped = True
        self.close()

    def _start(self) -> None:
        if self._stopped:
            raise WorkerDiedError("the run was stopped")
        ours, theirs = context().Pipe()
        process = context().Process(target=serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        self._process, self._pipe = process, ours

    def _send(self, message: Any) -> None:
        if self._process is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send(message)
        except OSError:
            raise WorkerDiedError(self._reap("")) from None

    def _receive(self, seconds: float) -> Any:
        assert self._pipe is not None
        try:
            if not self._pipe.poll(seconds):
                raise WorkerDiedError(self._reap(f"no answer within {seconds:.0f} s"), silent=True)
            reply = self._pipe.recv()
        except (EOFError, OSError):
            raise WorkerDiedError(self._reap("")) from None
        if isinstance(reply, KernelassayError):
            raise reply
        return reply

    def _reap(self, reason: str) -> str:
        process = self._process
        if process is not None and not reason:
            process.join(5)
            code = process.exitcode
            if code is None:
                reason = "it stopped answering"
            elif code < 0:
                reason = f"signal {signal.Signals(-code).name}"
            else:
                reason = f"exit code {code}"
        self.close()
        return reason


def _death(candidate: Candidate, spec: InputSpec, death: WorkerDiedError) -> Cell:
    # SIGKILL comes from outside (a person, the kernel out of memory): it says nothing of a mutant.
    killed = "SIGKILL" in death.reason
    crashed = cell.INFRASTRUCTURE if killed else cell.CRASH
    outcome = cell.TIMEOUT if death.silent else crashed
    return _without_output(candidate, spec, outcome, f"the worker ended twice: {death.reason}")


def _without_output(candidate: Candidate, spec: InputSpec, outcome: str, detail: str) -> Cell:
    return Cell(
        candidate=candidate.id,
        input=spec.id,
        outcome=outcome,
        detail=detail,
        infected=True,
        propagated=True,
        unwritten=0,
        findings=(),
        output_digest="",
        seen=None,
        poisoned=None,
        exact=None,
    )


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
                moved = tuple(map(bench.arguments, settled.moves))
                odd = tuple(map(bench.arguments, settled.odd))
                pipe.send(Trials(settled.specs, moved, odd))
            else:
                for reply in _measure(bench, request):
                    pipe.send(reply)
        except KernelassayError as error:
            pipe.send(error)
        except Exception as error:  # problem code raises whatever it likes
            where = bench.problem.id if bench is not None else _name(request)
            pipe.send(ProblemError(f"{type(error).__name__}: {error}"[:2000], where=where))


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

    prepared = InputBench(bench, request.spec)
    facts = prepared.facts()
    yield facts
    if not facts.finite:
        return
    try:
        fixed = [*prepared.prepare(request.originals).values(), *prepared.controls()]
        yield fixed
        for candidate in request.candidates:
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
                result = _without_output(candidate, request.spec, cell.INFRASTRUCTURE, str(error))
            yield result
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
