"""One problem of a session, on which new inputs are gated and mutants are run on them.

The executor is the session's, the gate is a run's. What a checker sees of a mutant is told by the
same code that scores a session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernelassay import cell
from kernelassay.analysis.ceiling import Judged, judged, locate
from kernelassay.cell import Cell
from kernelassay.errors import DeviceError, KernelassayError
from kernelassay.execute.bench import MUTANT, Candidate
from kernelassay.execute.toolbox import Toolbox
from kernelassay.execute.worker import UnitResult, UnitRunner
from kernelassay.gate import HEADROOM
from kernelassay.gate_inputs import input_record
from kernelassay.input_shapes import Overrides
from kernelassay.inputs import InputSpec, beside, has_parameters
from kernelassay.matrix import ProblemMatrix, of_tables
from kernelassay.oracle import CRITICAL, Bools
from kernelassay.population import candidates_of
from kernelassay.problem import Problem
from kernelassay.protocols import Protocol
from kernelassay.synthesis.generate.target import (
    SAME_SIGN,
    SIGN_MIXED,
    Kernel,
    Target,
    Tried,
    named,
    spec,
)
from kernelassay.synthesis.pool import spoiled
from kernelassay.tasks import run_task

UP_TO = 1e6
"""No ceiling beyond this is looked for: past the range of float16 nothing is gained."""


class Bed:
    """The correct kernels and some mutants of a planned problem, on a worker.

    ``runs`` counts the kernels that ran so far, correct ones and all: the cells. Where a problem
    runs at its official sizes, inputs are made for the problem at ``small`` ones, and run beside
    what checkers draw. Raises :class:`DeviceError` where the machine failed.
    """

    def __init__(
        self,
        plan: Mapping[str, Any],
        problem: Problem,
        worker: UnitRunner,
        tools: Toolbox,
        protocol: Protocol,
        tolerance: float,
        mutants: Sequence[str],
        small: Overrides = (),
    ) -> None:
        wanted = frozenset(mutants)
        self.plan = {**plan, "mutants": [m for m in plan["mutants"] if m["id"] in wanted]}
        self.problem = problem
        self.protocol = protocol
        self.tolerance = tolerance
        self.runs = 0
        self._small = small
        self._worker = worker
        worker.open(problem)
        self._originals, candidates = run_task(candidates_of, self.plan, tools)
        self._benign = [one for one in candidates if one.role != MUTANT]
        self._mutants: dict[str, Candidate] = {c.id: c for c in candidates if c.role == MUTANT}

    @property
    def _correct(self) -> tuple[str, ...]:
        """The ids of the correct kernels."""
        return (*self._originals, *(one.id for one in self._benign))

    def test(self, made: InputSpec, mutants: Sequence[str]) -> Tried:
        """Gate one input, and run some of the mutants on it, fit or not."""
        unit = self.measure(made, mutants)
        record = input_record(self._placed(made), unit)
        if unit.rejected:
            return Tried(made, record, unit.rejected)
        matrix = self._matrix(record, (*unit.fixed, *unit.cells))
        rejected, unknown = matrix.rejected_by(self.protocol), matrix.open_to(self.protocol)
        rejects = rejected[:, 0]
        spoils = spoiled(matrix, record["id"], rejected, unknown)
        fit = proven = np.zeros_like(rejects)
        if record["valid"]:
            if not spoils:
                fit = ~np.isnan(matrix.row_limits(self.limit)[:, 0])
            proven = matrix.killing(self.tolerance)[:, 0]
        infected = matrix.columns["infected"][:, 0] == 1

        def those(rows: Bools) -> frozenset[str]:
            return frozenset(name for name in mutants if rows[matrix.index[name]])

        return Tried(
            spec=made,
            record=record,
            objection=str(record["reason"]) or self._unfit(record) or spoils,
            killed=those(rejects & fit),
            falsely=those(rejects & ~fit),
            witnessed=those(proven),
            infected=those(infected),
            correct=frozenset(n for n in self._correct if rejects[matrix.index[n]]),
            margins={name: self._margin(matrix, name, rejects) for name in mutants},
        )

    def measure(self, made: InputSpec, mutants: Sequence[str]) -> UnitResult:
        """Run the correct kernels and some mutants on an input."""
        chosen = [self._mutants[name] for name in mutants]
        unit = self._worker.measure(self._placed(made), self._originals, [*self._benign, *chosen])
        self.runs += sum(not c.candidate.startswith("control/") for c in (*unit.fixed, *unit.cells))
        for one in (*unit.fixed, *unit.cells):
            if one.lost:
                raise DeviceError(f"{one.candidate} was lost: {one.detail}", where=made.id)
        return unit

    def _placed(self, made: InputSpec) -> InputSpec:
        """An input as the session's problem runs it."""
        return beside(made, self._small) if self._small else made

    def _matrix(self, record: Mapping[str, Any], cells: Sequence[Cell]) -> ProblemMatrix:
        """The cells of one input, as a session's are read."""
        return of_tables({**self.plan, "inputs": [record]}, {record["id"]: cell.table(cells)})

    @property
    def limit(self) -> float:
        """The tolerance of the protocol for the problem's outputs."""
        return self.protocol.rule_in(self.plan).tolerance

    def _unfit(self, record: Mapping[str, Any]) -> str:
        """Why correct kernels may fail the protocol on a valid input: it may be the stricter."""
        strays = max(record["benign_worst"], record["reference_error"])
        if strays <= self.limit * HEADROOM:
            return ""
        return f"correct kernels stray {strays:.2e} (the protocol: {self.limit * HEADROOM:g})"

    def _margin(self, matrix: ProblemMatrix, name: str, rejects: Bools) -> float:
        """The critical tolerance that the checker sees of a mutant, over its tolerance."""
        rule, row = matrix.rule_of(self.protocol), matrix.index[name]
        column = f"{self.protocol.view}_{CRITICAL[rule.form]}"
        if not matrix.ran[row, 0]:
            return np.inf
        margin = rule.margin(float(matrix.columns[column][row, 0]))
        return margin if margin > 1 or not rejects[row] else np.inf

    def target(self, seed: int) -> Target:
        """What a blind generator is told. Locates the ceilings, which runs correct kernels."""
        kernels = tuple(
            Kernel(call["id"], call["template"], tuple(call["ops"]), call["sources"][style])
            for call in self.plan["calls"]
            for style in call["styles"]
        )
        found = {kind: self._ceiling(kind, seed) for kind in (SIGN_MIXED, SAME_SIGN)}
        ceilings = {kind: scale for kind, scale in found.items() if scale is not None}
        return Target(
            problem=replace(self.problem, shrunk=self._small) if self._small else self.problem,
            kernels=kernels,
            ceilings=ceilings,
            tolerance=self.limit,
            parameters=has_parameters(self.problem),
            objection=lambda made: self.test(made, ()).objection,
        )

    def _ceiling(self, kind: str, seed: int) -> float | None:
        """The largest scale at which correct kernels pass the limit with the gate's headroom."""

        def judge(scale: float) -> Judged | None:
            made = spec("ceiling", seed, f"{kind}:x{scale:.6g}")
            return judged(self.measure(named(made), ()), self.limit)

        try:
            return locate(kind, judge, self.limit * HEADROOM, UP_TO).scale
        except DeviceError:
            raise
        except KernelassayError:  # some values of this kind cannot be run at all
            return None
