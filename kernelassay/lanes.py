"""Lanes: threads with one worker process each, and the agenda that they share.

A lane takes whole problems, plans them and measures them. Once no problem is left, it takes units
(a problem on one input) of problems that other lanes have planned and still measure.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernelassay import cell, plan
from kernelassay.execute.bench import Candidate
from kernelassay.execute.worker import UnitResult, Worker
from kernelassay.machines import MACHINES
from kernelassay.plan import PlanOptions
from kernelassay.population import Toolbox, candidates_of
from kernelassay.problem import Problem
from kernelassay.session import Session, inputs_of
from kernelassay.tasks import run_task
from kernelassay.timing import PLAN, PlanClock, PlanTiming

WORTH_OPENING = 2
"""Units nobody has taken that make a lane open another lane's problem, which costs seconds."""


class Reporter(Protocol):
    """Receives progress; called from lane threads, for one problem from several at a time."""

    def problem_step(self, problem: str, step: str) -> None:
        """A problem entered a step of its planning."""

    def problem_planned(self, problem: str, plan: dict[str, Any]) -> None:
        """A problem's plan is complete."""

    def cells_done(self, problem: str, count: int) -> None:
        """Some cells were measured."""

    def problem_done(self, problem: str, plan: dict[str, Any]) -> None:
        """All units of a problem are finished."""


@dataclass(slots=True, eq=False)
class Work:
    """A planned problem being measured; only :class:`Agenda` changes it.

    ``waiting`` holds the records of inputs that no lane has taken, the heaviest first; ``seconds``
    predicts each by its id, and one without a prediction counts as a second.
    """

    problem: Problem
    plan: dict[str, Any]
    originals: Mapping[str, Candidate]
    candidates: Sequence[Candidate]
    waiting: deque[dict[str, Any]]
    seconds: Mapping[str, float] = field(default_factory=dict)
    unfinished: int = field(init=False)

    def __post_init__(self) -> None:
        self.unfinished = len(self.waiting)
        self.waiting = deque(sorted(self.waiting, key=self._weight, reverse=True))

    @property
    def remaining(self) -> float:
        """The predicted seconds of all units that wait."""
        return sum(map(self._weight, self.waiting))

    def _weight(self, record: Mapping[str, Any]) -> float:
        return self.seconds.get(record["id"], 1.0)


@dataclass(frozen=True, slots=True)
class Unit:
    """A work's input that one lane has taken."""

    work: Work
    record: dict[str, Any]


class Agenda:
    """What is left to do, for all lanes. Its methods may be called from any thread."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.stopped = threading.Event()
        self._changed = threading.Condition()
        self._problems = deque(problems)
        self._planning = 0
        self._works: list[Work] = []

    def stop(self) -> None:
        """Let no lane begin anything any more, and wake those that wait."""
        with self._changed:
            self.stopped.set()
            self._changed.notify_all()

    def next(self) -> Problem | Unit | None:
        """A problem, which the lane must :meth:`offer` or :meth:`drop`; else a unit; else the end.

        Waits while other lanes plan problems that may have units.
        """
        with self._changed:
            while not self.stopped.is_set():
                if self._problems:
                    self._planning += 1
                    return self._problems.popleft()
                worth = [w for w in self._works if len(w.waiting) >= WORTH_OPENING]
                if worth:
                    return self._take(max(worth, key=lambda work: work.remaining))
                if not self._planning:
                    return None
                self._changed.wait()
        return None

    def offer(self, work: Work) -> Unit:
        """Show the units of a problem that is planned now to all lanes; returns the first."""
        with self._changed:
            self._works.append(work)
            self._planning -= 1
            self._changed.notify_all()
            return self._take(work)

    def drop(self) -> None:
        """Tell that a problem has nothing to measure."""
        with self._changed:
            self._planning -= 1
            self._changed.notify_all()

    def another(self, work: Work) -> Unit | None:
        """One more unit of a work, for a lane that has its problem open."""
        with self._changed:
            return self._take(work) if work.waiting and not self.stopped.is_set() else None

    def finish(self, unit: Unit) -> bool:
        """Tell that a unit is stored; returns whether it was the last one of its work."""
        with self._changed:
            unit.work.unfinished -= 1
            return unit.work.unfinished == 0

    def _take(self, work: Work) -> Unit:
        record = work.waiting.popleft()
        if not work.waiting:
            self._works.remove(work)
        return Unit(work, record)


class Lane(threading.Thread):
    """Works on an agenda until nothing is left that it could do; ``failure`` says why it broke."""

    def __init__(
        self,
        session: Session,
        tools: Toolbox,
        options: PlanOptions,
        reporter: Reporter,
        agenda: Agenda,
    ) -> None:
        super().__init__(daemon=True)
        self.failure: BaseException | None = None
        self._session = session
        self._tools = tools
        self._options = options
        self._reporter = reporter
        self._agenda = agenda
        self._machine = MACHINES["cpu"]
        self._worker = Worker(tools.runtime)
        self._open = ""  # the id of the problem that the worker has open

    def stop(self) -> None:
        """End the worker of a lane whose agenda is stopped."""
        self._worker.stop()

    def run(self) -> None:
        """Called by ``start``."""
        try:
            while (taken := self._agenda.next()) is not None:
                if isinstance(taken, Problem):
                    self._problem(taken)
                else:
                    self._units(taken)
        except BaseException as error:
            if not self._agenda.stopped.is_set():
                self.failure = error
        finally:
            self._worker.close()

    def _task(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return run_task(function, *arguments, stopped=self._agenda.stopped)

    def _problem(self, problem: Problem) -> None:
        made = self._session.read_plan(problem.id)
        if made is None:
            clock = PlanClock(lambda step: self._reporter.problem_step(problem.id, step))
            made = plan.make_plan(
                problem,
                self._worker,
                self._tools,
                self._options,
                run=self._task,
                progress=clock.step,
                measured=lambda spec, unit: clock.unit(spec.id, unit.timed()),
            )
            self._open = problem.id
            if self._agenda.stopped.is_set():
                return
            self._session.write_timing(problem.id, PLAN, clock.stop().to_json())
            self._session.write_plan(problem.id, made)
        self._reporter.problem_planned(problem.id, made)
        todo = [] if made["refused"] else self._unmeasured(problem, made)
        if todo:
            originals, candidates = self._task(candidates_of, made, self._tools)
            seconds = self._predicted(problem, originals, candidates)
            work = Work(problem, made, originals, candidates, deque(todo), seconds)
            self._units(self._agenda.offer(work))
        else:
            self._agenda.drop()
            self._reporter.problem_done(problem.id, made)

    def _predicted(
        self, problem: Problem, originals: Iterable[str], candidates: Iterable[Candidate]
    ) -> dict[str, float]:
        """The seconds of each unit, by the input's id, as far as the gate measured its work."""
        stored = self._session.read_timing(problem.id, PLAN)
        runs = Counter(candidate.original for candidate in candidates)
        return {
            name: self._machine.unit(unit.work, originals, runs).seconds
            for name, unit in (PlanTiming.from_json(stored).units if stored else {}).items()
            if unit.work is not None
        }

    def _unmeasured(self, problem: Problem, made: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            record
            for record in inputs_of(made)
            if not self._session.has_cells(problem.id, record["id"])
        ]

    def _units(self, first: Unit) -> None:
        """Measure a unit, and all of the same work that no other lane takes first."""
        work = first.work
        unit: Unit | None = first
        if self._open != work.problem.id:
            self._worker.open(work.problem)
            self._open = work.problem.id
        while unit is not None:
            self._measure(work, unit.record)
            if self._agenda.stopped.is_set():
                return
            if self._agenda.finish(unit):
                self._reporter.problem_done(work.problem.id, work.plan)
            unit = self._agenda.another(work)

    def _measure(self, work: Work, record: dict[str, Any]) -> None:
        problem = work.problem
        first = next(iter(inputs_of(work.plan)))["id"]
        unit = self._worker.measure(
            plan.spec_of(record),
            work.originals,
            work.candidates,
            check_order=record["id"] == first,
            on_cell=lambda count: self._reporter.cells_done(problem.id, count),
        )
        if self._agenda.stopped.is_set():
            return
        _require_complete(unit, problem, record, len(work.candidates))
        self._session.write_timing(problem.id, record["id"], unit.timed().to_json())
        self._session.write_cells(problem.id, record["id"], cell.table([*unit.fixed, *unit.cells]))


def _require_complete(
    unit: UnitResult, problem: Problem, record: dict[str, Any], expected: int
) -> None:
    if unit.rejected or len(unit.cells) != expected:
        raise RuntimeError(
            f"{problem.id} {record['id']}: a unit that was valid in planning yields"
            f" {len(unit.cells)} of {expected} cells ({unit.rejected or 'no reason'})"
        )
    assert unit.facts is not None
    if unit.facts.digest != record["digest"]:
        raise RuntimeError(
            f"{problem.id} {record['id']}: the input regenerated with another digest"
        )
