"""Worker processes: problem code and kernels run here, and only plain values come back.

Workers are forked from a fork server that has imported torch, so that a replacement costs
milliseconds. A worker that dies or hangs takes down only the candidate in flight: that one is
tried once more in a fresh worker, and a second death is its outcome.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import TYPE_CHECKING, Any, Protocol

from kernelassay import cell
from kernelassay.cell import Cell
from kernelassay.errors import DeviceError, KernelassayError, ProblemError
from kernelassay.execute.messages import (
    Battery,
    Beat,
    CallInfo,
    Measure,
    Open,
    Prepared,
    Trials,
)
from kernelassay.execute.outputs import ended
from kernelassay.execute.serving import serve
from kernelassay.execute.supervision import signal_name
from kernelassay.input_shapes import Small
from kernelassay.inputs import InputSpec
from kernelassay.problem import Problem
from kernelassay.timing import Losses, Replacement, Timing, UnitTiming

if TYPE_CHECKING:
    from kernelassay.execute.bench import Candidate, InputFacts
    from kernelassay.execute.toolbox import Toolbox

OPEN_SECONDS = 240.0
INPUT_SECONDS = 240.0
CANDIDATE_SECONDS = 150.0
"""Twice the device's own backstop and more: only a worker that is stuck outlasts it."""


@dataclass(slots=True)
class UnitResult:
    """What one unit of work (a problem on one input) yielded.

    ``rejected`` says why the input cannot be used; ``broken`` that a correct kernel did not end
    on it. ``fixed`` holds the cells of originals and controls. ``timing`` has what each part took.
    """

    facts: InputFacts | None = None
    rejected: str = ""
    broken: bool = False
    fixed: list[Cell] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    timing: Timing = field(default_factory=Timing)

    def timed(self) -> UnitTiming:
        """What a session keeps of the unit's seconds."""
        return UnitTiming(self.timing, self.facts.work if self.facts else None)


class UnitRunner(Protocol):
    """What planning asks of a worker; see :class:`Worker`."""

    def open(self, problem: Problem) -> tuple[CallInfo, ...]:
        """Load a problem."""

    def battery(self, size: str, small: Small | None = None, kinds: tuple[str, ...] = ()) -> Trials:
        """The inputs of the open problem."""

    def measure(
        self,
        spec: InputSpec,
        originals: Mapping[str, Candidate],
        candidates: Sequence[Candidate],
        *,
        check_order: bool = False,
        on_cell: Callable[[Cell], None] = lambda _: None,
    ) -> UnitResult:
        """Run candidates on one input."""


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
    "kernelassay.execute.serving",
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

    def __init__(self, tools: Toolbox) -> None:
        self._tools = tools
        self._process: ForkServerProcess | None = None
        self._pipe: Connection | None = None
        self._problem: Problem | None = None
        self._stopped = False
        self._losses = Losses()

    def open(self, problem: Problem) -> tuple[CallInfo, ...]:
        """Load a problem. Raises :class:`ProblemError` or :class:`UnsupportedError`."""
        self._problem = problem
        self._losses.begin()
        calls = self._load(problem)
        self._losses.resume()
        return calls

    def _load(self, problem: Problem) -> tuple[CallInfo, ...]:
        for attempt in (1, 2):
            try:
                self._send(Open(problem, self._tools))
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

    def battery(self, size: str, small: Small | None = None, kinds: tuple[str, ...] = ()) -> Trials:
        """The inputs of the open problem, with shapes that run and stay small.

        ``size`` is one of ``inputs.BATTERIES``; ``small`` and ``kinds`` are as in
        :class:`messages.Battery`.
        """
        self._losses.begin()
        for attempt in (1, 2):
            try:
                self._reopen()
                self._send(Battery(size, small, kinds))
                found: Trials = self._receive(OPEN_SECONDS)
                self._losses.resume()
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
        on_cell: Callable[[Cell], None] = lambda _: None,
    ) -> UnitResult:
        """Run candidates on one input, surviving whatever they do to the worker.

        Raises :class:`DeviceError`.
        """
        result = UnitResult()
        self._losses.begin()
        self._measure(result, spec, originals, candidates, check_order, on_cell)
        result.timing = result.timing.merge(Timing(replacements=self._losses.take()))
        return result

    def _measure(
        self,
        result: UnitResult,
        spec: InputSpec,
        originals: Mapping[str, Candidate],
        candidates: Sequence[Candidate],
        check_order: bool,
        on_cell: Callable[[Cell], None],
    ) -> None:
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
                self._collect(result, pending, on_cell)
                return
            except WorkerDiedError as death:
                received = len(result.cells) - done
                if not result.fixed or not pending:
                    failures += 1
                    if failures > 1:
                        result.rejected = f"the worker ended: {death.reason}"
                        return
                    continue
                pending = pending[received:]
                if not pending:
                    return
                if pending[0].id in retried:
                    result.cells.append(_death(pending.pop(0), spec, death))
                    on_cell(result.cells[-1])
                    if not pending:
                        return
                else:
                    retried.add(pending[0].id)
            except DeviceError:
                raise
            except KernelassayError as error:
                result.rejected = str(error)
                result.broken = result.facts is not None and isinstance(error, ProblemError)
                return

    def _collect(
        self,
        result: UnitResult,
        pending: Sequence[Candidate],
        on_cell: Callable[[Cell], None],
    ) -> None:
        result.facts = self._receive(INPUT_SECONDS)
        if result.facts is not None and not result.facts.runs:
            result.rejected = result.facts.problem
            self._losses.resume()
            return
        done: Prepared = self._receive(INPUT_SECONDS)
        result.fixed = done.cells
        if result.timing.fixed:  # done again: this belongs to what the replacement cost
            self._losses.resume()
        else:
            self._losses.resume(without=done.timing.prepare + done.timing.fixed)
            result.timing = result.timing.merge(done.timing)
        for candidate in tuple(pending):
            found, seconds = self._receive(CANDIDATE_SECONDS)
            result.cells.append(found)
            if seconds is not None:
                result.timing = result.timing.ran(candidate.original, seconds, done.runs)
            on_cell(found)

    def _reopen(self) -> None:
        if self._process is None and self._problem is not None:
            self._load(self._problem)

    def close(self) -> None:
        """End the process at once."""
        process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        end(process, pipe)

    def stop(self) -> None:
        """End the process and start no other; may be called from another thread.

        The pipe is left to the thread that reads from it: it finds it at its end. Two threads that
        close one pipe may close a file that a third has just opened.
        """
        self._stopped = True
        _kill(self._process)

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
            while True:
                if not self._pipe.poll(seconds):
                    raise WorkerDiedError(
                        self._reap(f"no answer within {seconds:.0f} s", True), silent=True
                    )
                reply = self._pipe.recv()
                self._losses.heard()
                if isinstance(reply, Replacement):
                    self._losses.add(reply)
                elif not isinstance(reply, Beat):
                    break
        except (EOFError, OSError):
            raise WorkerDiedError(self._reap("")) from None
        if isinstance(reply, KernelassayError):
            raise reply
        return reply

    def _reap(self, reason: str, silent: bool = False) -> str:
        process = self._process
        if process is not None and not reason:
            process.join(5)
            code = process.exitcode
            if code is None:
                reason = "it stopped answering"
            elif code < 0:
                reason = f"signal {signal_name(-code)}"
            else:
                reason = f"exit code {code}"
        self._losses.lose("silence" if silent else reason)
        self.close()
        return reason


def end(process: ForkServerProcess | None, pipe: Connection | None) -> None:
    """Close the pipe to a process, and end that at once."""
    if pipe is not None:
        pipe.close()
    if process is not None:
        _kill(process)
        process.join(10)


def _kill(process: ForkServerProcess | None) -> None:
    if process is not None and process.pid is not None:
        with contextlib.suppress(OSError):
            os.kill(process.pid, signal.SIGKILL)


def _death(candidate: Candidate, spec: InputSpec, death: WorkerDiedError) -> Cell:
    # SIGKILL comes from outside (a person, the kernel out of memory): it says nothing of a mutant.
    killed = "SIGKILL" in death.reason
    crashed = cell.INFRASTRUCTURE if killed else cell.CRASH
    outcome = cell.TIMEOUT if death.silent else crashed
    return ended(candidate.id, spec.id, outcome, f"{death.reason} (twice)")
