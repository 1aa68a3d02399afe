"""Lanes: threads with one station each, which work on an agenda and write the session.

A lane takes whole problems, has them planned and measured. Once no problem is left, it takes units
(a problem on one input) of problems that other lanes have planned and still measure.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from kernelassay import cell
from kernelassay.cell import Cell
from kernelassay.engines.agenda import Agenda, Unit, Work
from kernelassay.engines.gated import Gated, gated, of_correct
from kernelassay.engines.station import Fixed, Station, WorkLostError
from kernelassay.lazy import LAZY, Ledger
from kernelassay.machines import MACHINES
from kernelassay.plan import PlanOptions
from kernelassay.population import candidate_ids, runs_of
from kernelassay.problem import Problem
from kernelassay.session import Session, inputs_of
from kernelassay.timing import PLAN, PlanTiming, Timing, UnitTiming


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
            if not made["refused"]:
                self._session.write_gate(problem.id, cell.table(planned.gate))
                for name, cells in of_correct(made, planned.gate).items():
                    self._session.write_cells(problem.id, name, cell.table(cells))
            self._session.write_plan(problem.id, made)  # last: with it the problem is planned
        self._reporter.problem_planned(problem.id, made)
        todo = [] if made["refused"] else self._unmeasured(problem, made)
        if todo:
            read = partial(self._session.read_cells, problem.id)
            lazy = self._options.cells == LAZY
            ledger = Ledger(made, read, self._options.decided) if lazy else None
            known = self._gated(problem, made)
            seconds = self._predicted(problem, made, known)
            work = Work(problem, made, candidate_ids(made), deque(todo), seconds, ledger, known)
            return self._agenda.offer(work)
        self._agenda.drop()
        self._reporter.problem_done(problem.id, made)
        return None

    def _gated(self, problem: Problem, made: dict[str, Any]) -> dict[str, Gated]:
        """What the gate measured and need not be measured again; nothing if that is lost."""
        stored = self._session.read_gate(problem.id)
        if stored is None:
            return {}
        cells = map(Cell.from_row, stored.to_pylist())
        return gated(made, cells, ordered=self._options.gates_mutants)

    def _gate_units(self, problem: Problem) -> Mapping[str, UnitTiming]:
        stored = self._session.read_timing(problem.id, PLAN)
        return PlanTiming.from_json(stored).units if stored is not None else {}

    def _predicted(
        self, problem: Problem, made: dict[str, Any], known: Mapping[str, Gated]
    ) -> dict[str, float]:
        """The seconds of each unit, by the input's id, as far as the gate measured its work."""
        machine = MACHINES.get(str(self._session.manifest.get("executor")))
        if machine is None:
            return {}
        done = {name: {c.candidate for c in known[name].cells} for name in known}
        return {
            name: machine.unit(
                unit.work, unit.timing.kernels, runs_of(made, done.get(name, ()))
            ).seconds
            for name, unit in self._gate_units(problem).items()
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
        gate = work.gated.get(record["id"], Gated())
        # While it did not know all inputs, the gate may have run what is needless.
        ahead = [done for done in gate.cells if done.candidate not in implied]
        measured = {done.candidate for done in (*ahead, *unit.cells)}
        wanted = [name for name in work.candidates if name not in measured | implied.keys()]

        def on_cell(done: Cell) -> None:
            unit.cells.append(done)
            self._reporter.cells_done(problem.id, 1)

        if wanted or not gate.fixed:
            fixed = self._station.measure(problem, work.plan, record, wanted, on_cell)
        else:
            known = self._gate_units(problem).get(record["id"])
            fixed = Fixed(gate.fixed, UnitTiming(Timing(), known.work if known else None))
        if self._agenda.stopped.is_set():
            return
        rest = [Cell.implied(name, record["id"], reason) for name, reason in implied.items()]
        found = [*ahead, *unit.cells, *rest]
        if len(found) != len(work.candidates):
            raise RuntimeError(
                f"{problem.id} {record['id']}: {len(unit.cells)} cells of"
                f" {len(work.candidates)} candidates, {len(ahead)} by the gate,"
                f" {len(rest)} implied"
            )
        if ahead:
            self._reporter.cells_done(problem.id, len(ahead))
        self._session.write_timing(problem.id, record["id"], fixed.timing.to_json())
        cells = cell.table([*fixed.cells, *found])
        self._session.write_cells(problem.id, record["id"], cells)
