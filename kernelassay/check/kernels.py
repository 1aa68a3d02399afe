"""A CUDA file as a candidate: its device code alone runs, on the CPU executor, under its checks.

Host code of the file is never run. Outputs begin as NaN between guard zones, every access is
checked, and the second run takes the threads in another order. A header may skip inputs, but none
of the hidden ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from kernelassay import cell
from kernelassay.check.draws import HIDDEN
from kernelassay.check.processes import context, run_kernel
from kernelassay.check.subject import Seconds
from kernelassay.check.values import (
    Answer,
    Build,
    FailedError,
    Failure,
    NotForItError,
    Output,
    Prepared,
)
from kernelassay.errors import KernelassayError, ToolchainError, UnsupportedError, UsageError
from kernelassay.execute.worker import end
from kernelassay.inputs import InputSpec
from kernelassay.kernel import Finding
from kernelassay.problem import Problem

if TYPE_CHECKING:
    from kernelassay.execute.cpu.bench import CpuInputBench

_NO_BOUND = 1 << 62


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run in the kernel's process came to; ``digest`` is that of the inputs it drew."""

    outcome: str
    detail: str
    outputs: tuple[Output, ...]
    findings: tuple[Finding, ...]
    unwritten: int
    digest: str


class KernelSubject:
    """A kernel in its process; it answers as :class:`subject.Subject` does."""

    region_bytes = _NO_BOUND
    defences = (
        "own process, which runs device code alone",
        "outputs that begin as NaN, between guard zones",
        "every access checked: bounds, races, uninitialised memory, barriers",
        "each input run twice, in two thread orders",
        "a limit on the work of a launch",
        "inputs from a seed that the candidate cannot know",
    )
    missing = ()

    def __init__(self, problem: Problem, seconds: Seconds) -> None:
        self._problem = problem
        self._seconds = seconds
        self._pipe: Connection | None = None
        self._process: Any = None

    @property
    def gone(self) -> bool:
        """Whether its process has ended."""
        return self._process is None

    def start(self) -> None:
        """Compile the kernel and bind it.

        Raises :class:`FailedError` for one that does not compile, :class:`UsageError` for a
        header that does not fit the problem, ``ToolchainError`` without a compiler.
        """
        from kernelassay.execute.toolbox import CpuToolbox
        from kernelassay.session import user_cache

        tools = CpuToolbox.at(user_cache())
        self._pipe, theirs = context().Pipe()
        arguments = (theirs, self._problem, tools)
        process = context().Process(target=run_kernel, args=arguments, daemon=False)
        process.start()
        self._process = process
        theirs.close()
        reply = self._receive(self._seconds.build)
        if isinstance(reply, ToolchainError | UsageError):
            raise reply
        if isinstance(reply, KernelassayError):
            self.close()
            raise FailedError(Failure("does-not-build", str(reply)), fatal=True)

    def build(self, how: Build) -> None:
        """Nothing: a kernel gets its parameters with each run."""

    def forget(self, key: str) -> None:
        """Nothing: a kernel keeps nothing."""

    def run(self, prepared: Prepared, number: int, instance: str | None = None) -> Answer:
        """Run the kernel on an input, in the thread order of the run's ``number``.

        Raises :class:`NotForItError` where its header says that it is not made for the input.
        """
        if self._pipe is None:
            raise FailedError(Failure("ends", "its process is gone"), fatal=True)
        try:
            self._pipe.send((prepared.spec, number))
        except OSError:
            raise self._died() from None
        reply = self._receive(self._seconds.run)
        if isinstance(reply, UnsupportedError):
            raise NotForItError(str(reply))
        if isinstance(reply, ToolchainError):  # there is a compiler: what it made does not load
            self.close()
            raise FailedError(Failure("does-not-build", str(reply)), fatal=True)
        if isinstance(reply, KernelassayError):
            raise reply
        assert isinstance(reply, Ran)
        if reply.digest != prepared.digest:
            raise UsageError(
                "was drawn as other bytes for the kernel than for the reference",
                where=prepared.spec.id,
                hint="does get_inputs() draw without torch's seed?",
            )
        if reply.outcome != cell.OK:
            reason = "hangs" if reply.outcome == cell.TIMEOUT else "crash"
            detail = f"{reply.outcome}: {reply.detail}"
            raise FailedError(Failure(reason, detail), fatal=False)
        return Answer(reply.outputs, (), reply.findings, reply.unwritten)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        end(process, pipe)

    def _receive(self, seconds: float) -> Any:
        assert self._pipe is not None
        try:
            if not self._pipe.poll(seconds):
                self.close()
                raise FailedError(Failure("hangs", f"no answer within {seconds:g} s"), fatal=True)
            return self._pipe.recv()
        except (EOFError, OSError):
            raise self._died() from None

    def _died(self) -> FailedError:
        process = self._process
        if process is not None:
            process.join(5)
        code = process.exitcode if process is not None else None
        self.close()
        return FailedError(Failure("crash", f"its process ended with {code}"), fatal=True)


# ---- the process -------------------------------------------------------------------------------


def serve(pipe: Connection, problem: Problem, tools: Any) -> None:
    """The main loop of a kernel's process. EXECUTES the problem and the kernel."""
    from kernelassay.execute.serving import restrict

    restrict()
    try:
        bench = _Bench(problem, tools)
        pipe.send("ready")
    except KernelassayError as error:
        pipe.send(error)
        return
    while True:
        try:
            spec, number = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            pipe.send(bench.run(spec, number))
        except KernelassayError as error:
            pipe.send(error)


class _Bench:
    def __init__(self, problem: Problem, tools: Any) -> None:
        from kernelassay.execute.bench import ORIGINAL, Candidate, ProblemBench
        from kernelassay.execute.cpu.bench import CpuInputBench
        from kernelassay.execute.cpu.device import CpuDevice
        from kernelassay.kernel import OPTIMISED, BuildFailure

        assert problem.kernel is not None
        self._skip = problem.kernel.skip
        self._device = CpuDevice(tools.runtime)
        self._bench = ProblemBench(problem)
        (call,) = self._bench.calls
        name = f"{ORIGINAL}/{call.id}/{OPTIMISED}"
        source = call.sources[OPTIMISED]
        image = tools.build({name: source})[name]
        if isinstance(image, BuildFailure):
            note = problem.kernel.note
            raise UnsupportedError(
                image.unsupported or f"does not compile: {image.log[:1000]}",
                where=problem.kernel.path,
                hint=note,
            )
        self._candidate = Candidate(name, ORIGINAL, call.id, OPTIMISED, source, image)
        self._make = CpuInputBench
        self._open: tuple[InputSpec, CpuInputBench] | None = None

    def run(self, spec: InputSpec, number: int) -> Ran:
        from kernelassay.execute.outputs import other_order, without
        from kernelassay.plan import skipped

        if spec.group != HIDDEN and skipped(spec, self._skip):
            raise UnsupportedError("the kernel's header skips it")
        prepared = self._prepared(spec)
        order = spec.order if number == 1 else other_order(spec.order)
        result, unwritten, outputs = prepared.attempt(self._candidate, order)
        races = frozenset(f.kind for f in result.findings if f.kind.startswith("race-"))
        if races and not self._order_matters(prepared, outputs, other_order(order)):
            result = without(result, races)
        return Ran(
            result.outcome,
            result.detail,
            tuple(_output(value) for value in outputs),
            result.findings,
            unwritten,
            prepared.digest,
        )

    def _prepared(self, spec: InputSpec) -> CpuInputBench:
        if self._open is None or self._open[0] != spec:
            if self._open is not None:
                self._open[1].close()
            self._open = (spec, self._make(self._bench, self._device, spec))
        return self._open[1]

    def _order_matters(self, prepared: CpuInputBench, outputs: Sequence[Any], order: str) -> bool:
        """Lanes that store one value to one place race, and are right all the same."""
        _, _, others = prepared.attempt(self._candidate, order)
        pairs = zip(outputs, others, strict=True)
        return any(a.numpy().tobytes() != b.numpy().tobytes() for a, b in pairs)


def _output(value: Any) -> Output:
    array = value.numpy()
    return Output(str(array.dtype), tuple(array.shape), array.tobytes())
