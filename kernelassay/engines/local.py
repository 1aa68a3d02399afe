"""Work on this machine: a station is a worker process, with tasks for what is heavy beside it."""

from __future__ import annotations

import itertools
import shutil
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from kernelassay import plan as plans
from kernelassay.cell import Cell
from kernelassay.engines.remembered import RememberingWorker
from kernelassay.engines.station import Fixed, OnCell, OnStep, Planned, WorkLostError
from kernelassay.errors import DeviceError, ProblemError
from kernelassay.execute.bench import Candidate
from kernelassay.execute.toolbox import Toolbox
from kernelassay.execute.worker import UnitResult, Worker
from kernelassay.inputs import InputSpec
from kernelassay.plan import PlanOptions
from kernelassay.population import candidates_of
from kernelassay.problem import Problem
from kernelassay.session import first_input
from kernelassay.tasks import TaskDiedError, run_task
from kernelassay.timing import PlanClock

UNITS = "units"
"""The folder in a cache of what was measured of problems whose planning is under way."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Kernels:
    """A planned problem's candidates with their images, once they are built."""

    building: threading.Lock = field(default_factory=threading.Lock)
    originals: dict[str, Candidate] | None = None
    candidates: dict[str, Candidate] = field(default_factory=dict)


class LocalEngine:
    """Stations of this machine, dealt out to its ``devices`` in turn.

    They share the kernels of the problems that any has open.
    """

    def __init__(self, tools: Toolbox, devices: Sequence[int] = (0,)) -> None:
        self.tools = tools
        self._devices = itertools.cycle(devices)
        self._lock = threading.Lock()
        self._kernels: WeakValueDictionary[str, _Kernels] = WeakValueDictionary()

    def station(self) -> LocalStation:
        """A station whose worker starts with the first work."""
        return LocalStation(self, Worker(self.tools.on_device(next(self._devices))))

    def forget(self) -> None:
        """Delete what was measured of problems whose planning was under way: all are planned."""
        shutil.rmtree(self.tools.cache / UNITS, ignore_errors=True)

    def kernels(self, problem: str) -> _Kernels:
        """The kernels of a problem, for as long as a station holds them; perhaps not built yet."""
        with self._lock:
            found = self._kernels.get(problem)
            if found is None:
                found = self._kernels[problem] = _Kernels()
            return found


class LocalStation:
    """One worker process of this machine."""

    def __init__(self, engine: LocalEngine, worker: Worker) -> None:
        self._engine = engine
        self._worker = worker
        self._stopped = threading.Event()
        self._open = ""  # the id of the problem that the worker has open
        self._kernels = _Kernels()
        self._planned: RememberingWorker | None = None

    def ready(self, over: threading.Event) -> bool:
        """Always at once."""
        return not over.is_set()

    def plan(self, problem: Problem, options: PlanOptions, on_step: OnStep) -> Planned:
        """As in :class:`Station`."""
        self._forget()
        self._open = problem.id
        clock = PlanClock(on_step)
        tools = self._engine.tools
        remembering = RememberingWorker(self._worker, tools.cache / UNITS, problem, tools.settings)
        gate: list[Cell] = []

        def measured(spec: InputSpec, unit: UnitResult) -> None:
            clock.unit(spec.id, unit.timed(), before=remembering.recalled)
            gate.extend([*unit.fixed, *unit.cells])

        try:
            made = plans.make_plan(
                problem,
                remembering,
                self._engine.tools,
                options,
                run=self._task,
                progress=clock.step,
                measured=measured,
            )
        except DeviceError as error:
            raise WorkLostError(str(error)) from error
        self._planned = remembering
        return Planned(made, clock.stop(), gate)

    def measure(
        self,
        problem: Problem,
        plan: Mapping[str, Any],
        record: Mapping[str, Any],
        candidates: Sequence[str],
        on_cell: OnCell,
    ) -> Fixed:
        """As in :class:`Station`."""
        self._forget()
        self._kernels = self._engine.kernels(problem.id)
        try:
            originals = self._built(plan)
            if self._open != problem.id:
                self._reopen(problem)
            unit = self._worker.measure(
                plans.spec_of(record),
                originals,
                [self._kernels.candidates[name] for name in candidates],
                check_order=record["id"] == first_input(plan),
                on_cell=on_cell,
            )
        except DeviceError as error:
            raise WorkLostError(str(error)) from error
        if not self._stopped.is_set():
            _require_valid(unit, problem, record)
        return Fixed(unit.fixed, unit.timed())

    def stop(self) -> None:
        """End the worker, and the task under way."""
        self._stopped.set()
        self._worker.stop()

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def _forget(self) -> None:
        """Delete what planning left: who goes on to other work has written the plan."""
        if self._planned is not None:
            self._planned.forget()
            self._planned = None

    def _task(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return run_task(function, *arguments, stopped=self._stopped)
        except TaskDiedError as death:
            if death.code == -signal.SIGKILL:  # a person, or the system that has no memory left
                raise WorkLostError(str(death)) from None
            raise

    def _reopen(self, problem: Problem) -> None:
        """Open a problem that was opened in planning: now it is not its fault if that fails."""
        try:
            self._worker.open(problem)
        except ProblemError as error:
            raise WorkLostError(str(error)) from error
        self._open = problem.id

    def _built(self, plan: Mapping[str, Any]) -> dict[str, Candidate]:
        kernels = self._kernels
        with kernels.building:
            if kernels.originals is None:
                originals, rest = self._task(candidates_of, plan, self._engine.tools)
                kernels.candidates = {candidate.id: candidate for candidate in rest}
                kernels.originals = originals
            return kernels.originals


def _require_valid(unit: UnitResult, problem: Problem, record: Mapping[str, Any]) -> None:
    """A unit that was valid in planning is valid: what rejects it now is the machine."""
    if unit.rejected:
        raise WorkLostError(unit.rejected)
    assert unit.facts is not None
    if unit.facts.digest != record["digest"]:
        raise RuntimeError(
            f"{problem.id} {record['id']}: the input regenerated with another digest"
        )
