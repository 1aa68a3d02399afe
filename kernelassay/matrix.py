"""The kill matrix of a session, read back as arrays: candidates by inputs, per problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kernelassay.cell import IMPLIED, INFRASTRUCTURE, OK, STOPS
from kernelassay.errors import NothingToTestError, SessionError
from kernelassay.gate import HEADROOM
from kernelassay.joined import Cells
from kernelassay.oracle import AcceptanceRule, Bools, Column
from kernelassay.protocols.protocol import Protocol
from kernelassay.session import inputs_of, judging_correct

FLOOR = 1e-6
"""No tolerance is tighter than this: about eight units in the last place of float32 at 1."""


@dataclass(frozen=True)
class ProblemMatrix:
    """One problem's cells. Arrays have shape [candidates, inputs].

    ``beyond`` has the correct kernels on inputs that the validity gate refused, where a protocol of
    the session runs on them all the same; they prove nothing of a mutant.
    """

    plan: Mapping[str, Any]
    candidates: tuple[str, ...]
    inputs: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]]
    beyond: ProblemMatrix | None = None
    _decided: dict[tuple[AcceptanceRule, str], tuple[Bools, Bools]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def problem(self) -> str:
        """The problem's id."""
        return str(self.plan["problem"]["id"])

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Row of each candidate."""
        return {name: row for row, name in enumerate(self.candidates)}

    @cached_property
    def ran(self) -> Bools:
        """Cells whose kernel ended and left an output."""
        return np.asarray(self.columns["outcome"] == OK)

    @cached_property
    def lost(self) -> Bools:
        """Cells that an infrastructure error cost: neither accepted nor rejected by anybody."""
        return np.asarray(self.columns["outcome"] == INFRASTRUCTURE)

    @cached_property
    def implied(self) -> Bools:
        """Cells that were not measured, since others decided enough: no evidence of anything."""
        return np.asarray(self.columns["outcome"] == IMPLIED)

    def rows(self, names: Sequence[str]) -> NDArray[np.intp]:
        """Row numbers of some candidates."""
        return np.array([self.index[name] for name in names], dtype=np.intp)

    def positions(self, protocol: Protocol) -> NDArray[np.intp]:
        """Columns of the inputs a protocol judges by; :class:`SessionError` if one is missing."""
        missing = protocol.missing_in(self.plan)
        if missing:
            raise SessionError(
                f"inputs not measured: {', '.join(missing)}",
                where=self.problem,
                hint=f"{protocol.name} asks for inputs that this session does not hold",
            )
        names = protocol.inputs_in(self.plan)
        return np.array([self.inputs.index(name) for name in names], dtype=np.intp)

    def rule_of(self, protocol: Protocol) -> AcceptanceRule:
        """The acceptance rule of a protocol for this problem's outputs."""
        return protocol.rule_in(self.plan)

    def rejected_by(self, protocol: Protocol) -> Bools:
        """Measured cells that a protocol's rule does not pass, lost and open ones left out.

        A kernel that stopped never passes.
        """
        accepted, unknown = self._judged(protocol)
        return np.asarray(~(accepted | unknown | self.lost | self.implied))

    def open_to(self, protocol: Protocol) -> Bools:
        """Cells that leave a protocol's verdict open: lost, or not telling as far as it asks."""
        return np.asarray(self.lost | self._judged(protocol)[1])

    def _judged(self, protocol: Protocol) -> tuple[Bools, Bools]:
        key = self.rule_of(protocol), protocol.view
        if key not in self._decided:
            passes, unknown = key[0].judge(self.verdicts(protocol.view))
            self._decided[key] = np.asarray(self.ran & passes), np.asarray(self.ran & unknown)
        return self._decided[key]

    def verdicts(self, view: str) -> Column:
        """The numbers of the verdicts of one view, by name."""
        return lambda name: self.columns[f"{view}_{name}"]

    def limits(self, tolerance: float | None, style: str = "") -> NDArray[np.float64]:
        """Per input, the error that proves a fault at a tolerance; NaN if not valid there.

        ``None`` is the tightest tolerance of each input: what every correct kernel and the
        references pass, with the gate's headroom, and no less than :data:`FLOOR`. For mutants of a
        relaxed ``style`` its own correct kernels count among these.
        """
        facts = {record["id"]: record for record in self.plan["inputs"]}
        strays = np.array(
            [
                max(facts[n]["benign_worst"], facts[n]["reference_error"], _own(facts[n], style))
                for n in self.inputs
            ]
        )
        needed = np.where(np.isfinite(strays), strays / HEADROOM, np.nan)
        if tolerance is None:
            return np.maximum(needed, FLOOR)
        return np.where(needed <= tolerance, tolerance, np.nan)

    def valid_at(self, tolerance: float | None) -> Bools:
        """Inputs on which references agree and correct variants pass with headroom. [inputs]."""
        return np.asarray(~np.isnan(self.limits(tolerance)))

    def row_limits(self, tolerance: float | None) -> NDArray[np.float64]:
        """:meth:`limits` for every candidate: a relaxed style has its own. [candidates, inputs]."""
        shape = (len(self.candidates), len(self.inputs))
        limits = np.broadcast_to(self.limits(tolerance), shape).copy()
        relaxed = {style for record in self.plan["inputs"] for style in record["style_worst"]}
        for style in relaxed:
            names = [
                m["id"]
                for m in self.plan["mutants"]
                if m["style"] == style and m["id"] in self.index
            ]
            limits[self.rows(names)] = self.limits(tolerance, style)
        return limits

    def witnessing(self, tolerance: float | None) -> Bools:
        """Cells that prove a fault by output at a tolerance: valid input, exact reference."""
        limits = self.row_limits(tolerance)
        matched, _ = AcceptanceRule(np.inf, nonfinite="matched").judge(self.verdicts("exact"))
        with np.errstate(invalid="ignore"):
            strays = self.columns["exact_critical_tolerance"] > limits
        differs = strays | ~matched
        return np.asarray(self.ran & differs & ~np.isnan(limits))

    def stopping(self, tolerance: float | None) -> Bools:
        """Cells that prove a fault by a crash, a hang or a failed launch on a valid input."""
        stopped = np.isin(self.columns["outcome"], STOPS)
        return np.asarray(stopped & ~np.isnan(self.row_limits(tolerance)))

    def killing(self, tolerance: float | None) -> Bools:
        """Cells that prove a fault at a tolerance, by output or by a stop: kill witnesses."""
        return self.witnessing(tolerance) | self.stopping(tolerance)


def load(session: Cells, *, partial: bool = False) -> tuple[ProblemMatrix, ...]:
    """The matrices of all admitted problems of a session, or of several joined.

    With ``partial`` the problems that are finished, else all must be. Raises
    :class:`SessionError` if units are missing, :class:`NothingToTestError` if no problem is
    admitted and finished.
    """
    if not partial:
        require_finished(session)
    finished = session.finished_plans()
    matrices = tuple(of_plan(session, plan) for plan in finished if not plan["refused"])
    unfinished = session.unfinished()
    if unfinished and not matrices:
        raise NothingToTestError(
            f"no admitted problem is finished yet; {len(unfinished)} not finished",
            where=session.name,
            hint="wait for the run, or start it again with the same command",
        )
    if not matrices:
        raise NothingToTestError(
            "no problem was admitted",
            where=session.name,
            hint="`kernelassay problems --session DIR` lists the reasons",
        )
    return matrices


def require_finished(session: Cells) -> None:
    """Raises :class:`SessionError` if some problem is not finished."""
    unfinished = session.unfinished()
    if unfinished:
        total = len(session.problems)
        raise SessionError(
            f"{len(unfinished)} of {total} problems are not finished ({unfinished[0]} ...)",
            where=session.name,
            hint="start the run again with the same command to complete it, or add --partial",
        )


def of_plan(session: Cells, plan: Mapping[str, Any]) -> ProblemMatrix:
    """The matrix of one finished, admitted problem.

    Raises :class:`SessionError` if a cell is missing or damaged.
    """
    names = [record["id"] for record in inputs_of(plan)]
    found = of_tables(plan, {n: session.read_cells(plan["problem"]["id"], n) for n in names})
    required = {m["id"] for m in plan["mutants"] if measured(m)}
    required |= {b["id"] for b in plan["benign"] if not b["unsupported"]}
    required |= {f"original/{call['id']}/{s}" for call in plan["calls"] for s in call["styles"]}
    required.add("control/forced-failure")
    absent = required.difference(found.candidates)
    if absent:
        raise SessionError(
            f"cells are missing for {len(absent)} candidates ({min(absent)} ...)",
            where=plan["problem"]["id"],
            hint="remove this problem's folder under cells/ and start the run again",
        )
    refused = [record["id"] for record in judging_correct(plan)]
    if not refused:
        return found
    tables = {n: session.read_cells(plan["problem"]["id"], n) for n in refused}
    return replace(found, beyond=of_tables(plan, tables))


def of_tables(plan: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> ProblemMatrix:
    """The matrix of some inputs of a planned problem, from their cells: those of all candidates."""
    names = [table.column("candidate").to_pylist() for table in tables.values()]
    candidates = tuple(sorted(set(names[0]).intersection(*names[1:])))
    order: list[int] = []
    start = 0
    for column in names:
        position = {name: row for row, name in enumerate(column, start)}
        order += (position[name] for name in candidates)
        start += len(column)
    aligned = pa.concat_tables(tables.values()).take(pa.array(order, pa.int64()))
    shape = (len(tables), len(candidates))
    columns = {
        field.name: _array(aligned.column(field.name)).reshape(shape).T.copy()
        for field in aligned.schema
        if field.name not in ("candidate", "input")
    }
    return ProblemMatrix(plan, candidates, tuple(tables), columns)


def _own(record: Mapping[str, Any], style: str) -> float:
    """How far the correct kernels of a relaxed style stray on an input."""
    worst = record["style_worst"].get(style, 0.0)
    return float("inf") if worst is None else float(worst)


def _array(column: pa.ChunkedArray) -> NDArray[Any]:
    if pa.types.is_list(column.type) or pa.types.is_string(column.type):
        values = column.to_pylist()
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array
    if pa.types.is_boolean(column.type):
        return np.array([-1 if v is None else int(v) for v in column.to_pylist()], dtype=np.int8)
    if pa.types.is_integer(column.type):
        return np.asarray(column.fill_null(-1).to_numpy())
    return np.asarray(column.to_numpy())


def measured(mutant: Mapping[str, Any]) -> bool:
    """Whether a planned mutant is one that cells are measured for."""
    return mutant["status"] == "distinct" and not mutant["unsupported"]
