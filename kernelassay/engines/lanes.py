"""Lanes: threads with one station each, which work on an agenda and write the session.

A lane takes whole problems, has them planned and measured. Once no problem is left, it takes units
(a problem on one input) of problems that other lanes have planned and still measure.
"""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import Any, Protocol

from kernelassay import cell
from kernelassay.cell import Cell
from kernelassay.engines.agenda import Agenda, Unit, Work
from kernelassay.engines.station import Station, WorkLostError
from kernelassay.lazy import LAZY, Ledger
from kernelassay.machines import MACHINES
from kernelassay.plan import PlanOptions
from kernelassay.population import candidate_ids, runs_of
from kernelassay.problem import Problem
from kernelassay.session import Session, inputs_of
from kernelassay.timing import PLAN, PlanTiming


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


class Lane(threading.Thread):
    """Works on an agenda until nothing is left that it could do; ``failure`` says why it broke."""

    def __init__(
        self,
        session: Session,
        station: Station,
        options: PlanOptions,
        reporter: Reporter,
        agenda: Agenda,
    ) -> None:
        super().__init__(daemon=True)
        self.failure: BaseException | None = None
        self._session = session
        self._station = station
        self._options = options
        self._reporter = reporter
        self._agenda = agenda
        self._hand: Problem | Unit | None = None  # what is taken and not finished

    def stop(self) -> None:
        """Break off the station of a lane whose agenda is stopped."""
        self._station.stop()

    def run(self) -> None:
        """Called by ``start``."""
        try:
            while self._station.ready(self._agenda.over):
                self._hand = self._agenda.next()
                if self._hand is None:
                    break
                try:
                    self._work()
                except WorkLostError as loss:
                    if not self._agenda.stopped.is_set():
                        self._agenda.put_back(self._hand, str(loss))
        except BaseException as error:
            if not self._agenda.stopped.is_set():
                self.failure = error
        finally:
            self._station.close()

    def _work(self) -> None:
        """Do what is in hand, and all units of the same work that no other lane takes first."""
        if isinstance(self._hand, Problem):
            self._hand = self._first_unit(self._hand)
        while self._hand is not None:
            unit, work = self._hand, self._hand.work
            self._measure(unit)
            if self._agenda.stopped.is_set():
                return
            if self._agenda.finish(unit):
                self._reporter.problem_done(work.problem.id, work.plan)
            self._hand = self._agenda.another(work)

    def _first_unit(self, problem: Problem) -> Unit | None:
        """Plan a problem and offer its units; the first one, if there is any to measure."""
        made = self._session.read_plan(problem.id)
        if made is None:
            planned = self._station.plan(
                problem,
                self._options,
                lambda step: self._reporter.problem_step(problem.id, step),
            )
            if self._agenda.stopped.is_set():
                return None
            made = planned.plan
            self._session.write_timing(problem.id, PLAN, planned.timing.to_json())
            self._session.write_plan(problem.id, made)
        self._reporter.problem_planned(problem.id, made)
        todo = [] if made["refused"] else self._unmeasured(problem, made)
        if todo:
            read = partial(self._session.read_cells, problem.id)
            ledger = Ledger(made, read) if self._options.cells == LAZY else None
            seconds = self._predicted(problem, made)
            work = Work(problem, made, candidate_ids(made), deque(todo), seconds, ledger)
            return self._agenda.offer(work)
        self._agenda.drop()
        self._reporter.problem_done(problem.id, made)
        return None

    def _predicted(self, problem: Problem, made: dict[str, Any]) -> dict[str, float]:
        """The seconds of each unit, by the input's id, as far as the gate measured its work."""
        machine = MACHINES.get(str(self._session.manifest.get("executor")))
        stored = self._session.read_timing(problem.id, PLAN)
        if stored is None or machine is None:
            return {}
        runs = runs_of(made)
        return {
            name: machine.unit(unit.work, unit.timing.kernels, runs).seconds
            for name, unit in PlanTiming.from_json(stored).units.items()
            if unit.work is not None
        }

    def _unmeasured(self, problem: Problem, made: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            record
            for record in inputs_of(made)
            if not self._session.has_cells(problem.id, record["id"])
        ]

    def _measure(self, unit: Unit) -> None:
        """Measure what a unit lacks and is not implied, and store it."""
        work, record = unit.work, unit.record
        problem = work.problem
        implied = work.ledger.implied(record["id"]) if work.ledger else {}
        measured = {done.candidate for done in unit.cells}
        wanted = [name for name in work.candidates if name not in measured | implied.keys()]

        def on_cell(done: Cell) -> None:
            unit.cells.append(done)
            self._reporter.cells_done(problem.id, 1)

        fixed = self._station.measure(problem, work.plan, record, wanted, on_cell)
        if self._agenda.stopped.is_set():
            return
        rest = [Cell.implied(name, record["id"], reason) for name, reason in implied.items()]
        if len(unit.cells) + len(rest) != len(work.candidates):
            raise RuntimeError(
                f"{problem.id} {record['id']}: {len(unit.cells)} cells of"
                f" {len(work.candidates)} candidates, {len(rest)} implied"
            )
        self._session.write_timing(problem.id, record["id"], fixed.timing.to_json())
        cells = cell.table([*fixed.cells, *unit.cells, *rest])
        self._session.write_cells(problem.id, record["id"], cells)
