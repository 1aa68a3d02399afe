"""The CUDA executor's side of a worker: it stays free of CUDA and keeps a child that is not.

A kernel that faults takes the context of its process with it; one that hangs is ended with its
process. Either way the child is replaced, and the candidates that are left go on in the next one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from kernelassay import cell
from kernelassay.errors import DeviceError, KernelassayError, ProblemError, UnsupportedError
from kernelassay.execute.bench import ProblemBench
from kernelassay.execute.cuda.child import (
    CHECK_EVERY,
    Expired,
    Prepare,
    Ready,
    Release,
    Released,
    Results,
    Task,
    TooLittle,
    run_child,
)
from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.execute.cuda.sharing import BEAT_SECONDS, SHARES, Locks, Room, shares_of
from kernelassay.execute.messages import Beat, Measure
from kernelassay.execute.outputs import ended
from kernelassay.execute.supervision import signal_name
from kernelassay.inputs import InputSpec
from kernelassay.problem import Problem
from kernelassay.substrate.lowering import MAX_BLOCKS
from kernelassay.timing import Losses, Timing
from kernelassay.work import peak_bytes

WIDE_BLOCKS = 1056
"""``max_blocks`` at official sizes: eight blocks of 256 threads on each of 132 multiprocessors."""

START_SECONDS = 120.0
INPUT_SECONDS = 200.0
RELEASE_SECONDS = 60.0
CANDIDATE_SECONDS = 120.0
EXPIRED, DIED, SILENT = "expired", "died", "silent"


class ChildDiedError(Exception):
    """A child ended or went silent.

    ``expired``: a kernel ran too long. ``certain``: it was the next candidate's. ``why`` is that of
    the :class:`timing.Replacement`.
    """

    def __init__(
        self, reason: str, *, expired: bool = False, certain: bool = False, why: str = ""
    ) -> None:
        super().__init__(reason)
        self.why = why or (EXPIRED if expired else DIED)
        self.expired = expired
        self.certain = certain

    @property
    def foreign(self) -> bool:
        """Whether no kernel did it, which for one that hangs has a watchdog in the child.

        Silence is of the machine; SIGKILL a person sends, or the system that has no memory left.
        """
        return self.why == SILENT or "SIGKILL" in str(self)


class TooLittleMemoryError(Exception):
    """What a child had of the device's memory did not do; it has given everything back."""


class CudaWorkbench:
    """See :class:`kernelassay.execute.toolbox.Workbench`; ``device`` as in the toolbox."""

    def __init__(
        self,
        problem: Problem,
        kernels: Path,
        options: CudaOptions,
        device: str,
        beat: Callable[[], None],
    ) -> None:
        self.bench = ProblemBench(problem, WIDE_BLOCKS if options.official else MAX_BLOCKS)
        self._kernels = kernels
        self._options = options
        self._gpu = device
        self._beat = beat
        self._child: Child | None = None
        self._spare: Child | None = None
        self._faulty = False
        self._losses = Losses()
        self._room = Room(Locks.of(device))

    def close(self) -> None:
        """End the child and the one that stands by."""
        self._end()
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def expect(self, specs: Sequence[InputSpec]) -> None:
        """Trace the problem for inputs to come, before any child is forked."""
        for spec in specs:
            with contextlib.suppress(KernelassayError):  # it is raised again when it is measured
                self.bench.prepare_trace(spec)
        self.close()

    def measure(self, request: Measure) -> Iterator[Any]:
        """The replies to a request, timed.

        A process that is lost with the last candidate is told of in the next request.
        """
        start, tracing = time.perf_counter(), 0.0
        if self.bench.prepare_trace(request.spec):
            self.close()  # children forked now have this graph too
            tracing = time.perf_counter() - start
        try:
            self._room.take(self._shares(request.spec), self._beat)
            self._losses.begin()
            usable = yield from self._first(request, tracing)
            if usable:
                yield from self._rest(request)
        except GeneratorExit:
            self._end()  # it is at work
            raise
        finally:
            self._leave_room()

    def _rest(self, request: Measure) -> Iterator[Any]:
        """The cells of all candidates, with their seconds and what was replaced before each."""
        pending = list(request.candidates)
        singly, deaths = 0, 0
        while pending:
            try:
                results = self._next(request, tuple(pending), singly)
                for found, seconds in results:
                    deaths = 0
                    singly = max(0, singly - 1)
                    yield from self._losses.take()
                    yield found, seconds
                    pending.pop(0)
            except TooLittleMemoryError as error:
                self._take_all(error, request.spec)
            except ChildDiedError as death:
                self._lose(death.why)
                if death.why == cell.OUT_OF_MEMORY and self._room.held < SHARES:
                    self._room.take(SHARES, self._beat)
                    continue
                deaths += 1
                if death.certain or (singly and (death.expired or deaths > 1)):
                    lost = cell.INFRASTRUCTURE if death.foreign else cell.CRASH
                    outcome = cell.TIMEOUT if death.expired else lost
                    yield ended(pending.pop(0).id, request.spec.id, outcome, str(death)), None
                    deaths = 0
                singly = CHECK_EVERY

    def _first(self, request: Measure, tracing: float) -> Generator[Any, None, bool]:
        """The facts, and the cells of originals and controls; ``tracing`` took some seconds.

        Returns whether the input is usable: else nobody waits for more.
        """
        sent, deaths = False, 0
        while True:
            try:
                child = self._covered(request.spec)
                child.send(self._task(request, (), fresh=True))
                facts = child.receive(INPUT_SECONDS)
                if not sent:
                    yield facts
                sent = True
                if facts.runs:
                    first = child.receive(INPUT_SECONDS)
                    self._losses.resume(without=first.timing.prepare + first.timing.fixed)
                    yield from self._losses.take()
                    self._losses.heard()
                    yield replace(first, timing=first.timing.merge(Timing(prepare=tracing)))
                return bool(facts.runs)
            except TooLittleMemoryError as error:
                self._take_all(error, request.spec)
            except ChildDiedError as death:
                self._lose(death.why)
                deaths += 1
                if death.expired:
                    raise UnsupportedError(
                        "a correct kernel takes too long on this input", where=request.spec.id
                    ) from None
                if deaths == 2:
                    kind = DeviceError if death.foreign else ProblemError
                    what = f"the process that prepared the input ended: {death}"
                    raise kind(what, where=request.spec.id) from None

    def _next(self, request: Measure, pending: tuple[Any, ...], singly: int) -> Iterator[Any]:
        """Cells of pending candidates from a living child, until all are done or it dies."""
        child = self._covered(request.spec)
        child.send(self._task(request, pending, singly=singly))
        left = len(pending)
        while left:
            results = child.receive(INPUT_SECONDS if left == len(pending) else CANDIDATE_SECONDS)
            assert isinstance(results, Results)
            if results.ended == cell.OUT_OF_MEMORY and self._room.held < SHARES:
                results = replace(results, cells=())  # it is measured again, with all there is
            if results.cells:
                self._losses.resume(without=sum(seconds for _, seconds in results.cells))
                self._losses.heard()
            yield from results.cells
            left -= len(results.cells)
            if results.ended:
                if not results.cells:
                    raise ChildDiedError("a kernel spoilt it", why=results.ended)
                self._lose(results.ended)
                return

    def _task(
        self,
        request: Measure,
        pending: tuple[Any, ...],
        *,
        fresh: bool = False,
        singly: int = 0,
    ) -> Task:
        return Task(request, pending, fresh, singly, heavy=self._room.held > 0)

    # ---- the device's memory -------------------------------------------------------------------

    def _shares(self, spec: InputSpec) -> int:
        """The shares of the device that an input takes. Raises ``DeviceError`` without one."""
        need = peak_bytes(self.bench.traced_for(spec))
        try:
            total = self._living().total_bytes
        except ChildDiedError as death:
            self._end()
            raise DeviceError(f"the process that uses the device ended: {death}") from None
        return shares_of(need, total, self._options.lanes)

    def _take_all(self, error: TooLittleMemoryError, spec: InputSpec) -> None:
        """Have the device to this process. Raises ``UnsupportedError`` if it has that already."""
        if self._room.held == SHARES:
            raise UnsupportedError(
                f"the device has too little memory: {error}", where=spec.id
            ) from None
        self._room.take(SHARES, self._beat)

    def _leave_room(self) -> None:
        """Let others have the memory, once the child has given it back."""
        if self._room.held and self._child is not None:
            try:
                self._child.send(Release())
                while not isinstance(self._child.receive(RELEASE_SECONDS), Released):
                    pass
            except (ChildDiedError, TooLittleMemoryError, KernelassayError):
                self._end()
        self._room.leave()

    # ---- children ------------------------------------------------------------------------------

    def _living(self) -> Child:
        """The child, or the one that stands by in its place."""
        if self._child is None:
            self._child, self._spare = self._spare or self._fork(), None
            self._child.wait_until_ready()
        return self._child

    def _covered(self, spec: InputSpec) -> Child:
        """The child, with another one that stands by once a kernel of the problem has faulted.

        That one prepares the input, too, if it may be there twice: what has a part of the memory
        may not, and what is of full size should not.
        """
        child = self._living()
        if self._faulty:
            if self._spare is None:
                self._spare = self._fork()
            if not self._room.held and (spec.overrides or not self._options.official):
                self._spare.tell(Prepare(spec))
        return child

    def _lose(self, why: str) -> None:
        self._faulty = True
        self._losses.lose(why)
        self._end()

    def _fork(self) -> Child:
        return Child(self.bench, self._kernels, self._options, self._gpu, self._beat)

    def _end(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


class Child:
    """A handle on one child process."""

    def __init__(
        self,
        bench: ProblemBench,
        kernels: Path,
        options: CudaOptions,
        device: str,
        beat: Callable[[], None],
    ) -> None:
        self._beat = beat
        self._pipe, theirs = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                self._pipe.close()
                run_child(theirs, bench, kernels, options, device)
                code = 0
            finally:
                os._exit(code)
        theirs.close()
        self._told: Prepare | None = None
        self.total_bytes = 0

    def wait_until_ready(self) -> None:
        """Wait for its first word. Raises ``DeviceError`` if it cannot use the device."""
        if not self.total_bytes:
            ready = self.receive(START_SECONDS)
            assert isinstance(ready, Ready)
            self.total_bytes = ready.total_bytes

    def tell(self, wish: Prepare) -> None:
        """Ask for something that has no answer; not twice in a row for the same."""
        if wish != self._told:
            self._told = wish
            with contextlib.suppress(OSError):  # that it died shows when it is needed
                self._pipe.send(wish)

    def send(self, task: Task | Release) -> None:
        """Ask for something. Raises :class:`ChildDiedError`."""
        self._told = None
        try:
            self._pipe.send(task)
        except OSError:
            raise ChildDiedError(self._reap()) from None

    def receive(self, seconds: float) -> Any:
        """The next answer. Raises it if it is an error, :class:`ChildDiedError` if none comes.

        Raises :class:`TooLittleMemoryError` if the memory does not do.
        """
        try:
            while True:
                self._listen(seconds)
                answer = self._pipe.recv()
                if not isinstance(answer, Beat):
                    break
                self._beat()
        except (EOFError, OSError):
            raise ChildDiedError(self._reap()) from None
        if isinstance(answer, KernelassayError):
            raise answer
        if isinstance(answer, TooLittle):
            raise TooLittleMemoryError(answer.what)
        if isinstance(answer, Expired):
            raise ChildDiedError("a kernel ran too long", expired=True, certain=answer.next)
        return answer

    def _listen(self, seconds: float) -> None:
        """Wait for a message. Who watches this worker is told that it does: it is not stuck."""
        end = time.monotonic() + seconds
        while not self._pipe.poll(min(BEAT_SECONDS, max(0.0, end - time.monotonic()))):
            if time.monotonic() >= end:
                raise ChildDiedError(f"no answer within {seconds:.0f} s", why=SILENT)
            self._beat()

    def close(self) -> None:
        """End the process at once."""
        self._pipe.close()
        if self._pid:  # 0 if it is reaped: that would be this process's whole group
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> str:
        if self._pid == 0:
            return "it was ended"
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(self._pid, 0)
            self._pid = 0
            code = os.waitstatus_to_exitcode(status)
            return f"signal {signal_name(-code)}" if code < 0 else f"exit code {code}"
        return "it was ended"
