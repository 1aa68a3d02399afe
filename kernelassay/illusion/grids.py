"""Trials as arrays: per operator, kernels x cases, and who fails there under a rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kernelassay.errors import SessionError
from kernelassay.execute.execution import UNSUPPORTED
from kernelassay.illusion.campaign import PART
from kernelassay.illusion.op import Op
from kernelassay.illusion.oracle import Reference, Rule
from kernelassay.illusion.trials import BENIGN, CONTROL, MUTANT, Subject, Trials
from kernelassay.illusion.values import VALUES
from kernelassay.oracle import AcceptanceRule, Bools


@dataclass(frozen=True, slots=True)
class Grid:
    """All trials of one operator: kernels x cases, cases strategy by strategy in their order.

    ``columns`` has what :data:`trials.SCHEMA` names, with that shape, and whether a run was
    ``flagged`` by a sanitizer, and whether it ``changes`` an input.
    """

    op: Op
    rows: tuple[Subject, ...]
    strategies: tuple[str, ...]
    indices: NDArray[np.int64]
    values: tuple[str, ...]
    sizes: tuple[Mapping[str, int], ...]
    columns: Mapping[str, NDArray[Any]]

    @property
    def operator(self) -> str:
        """The operator's name."""
        return self.op.name

    def of(self, *roles: str) -> NDArray[np.int64]:
        """The rows of some roles."""
        return np.array([at for at, row in enumerate(self.rows) if row.role in roles], np.int64)

    @property
    def correct(self) -> Bools:
        """Which kernels are known to be correct, and judged. Shape [kernels]."""
        known = np.array([row.role in (CONTROL, BENIGN) for row in self.rows], bool)
        return known & ~self.unjudged

    @property
    def unjudged(self) -> Bools:
        """Which kernels do something that the device refuses to compute. Shape [kernels]."""
        return np.asarray((self.columns["outcome"] == UNSUPPORTED).any(axis=1))

    @property
    def mutants(self) -> Bools:
        """Which kernels are mutants, and judged. Shape [kernels]."""
        return np.array([row.role == MUTANT for row in self.rows], bool) & ~self.unjudged

    @property
    def finite(self) -> Bools:
        """Which cases draw finite values only. Shape [cases]."""
        return np.array([VALUES[name].finite for name in self.values], bool)

    def first(self, name: str, budget: int | None) -> NDArray[np.int64]:
        """The columns of a strategy's first ``budget`` cases (``None``: of all)."""
        mine = np.array([one == name for one in self.strategies], bool)
        if budget is not None:
            mine &= self.indices < budget
        return np.flatnonzero(mine)

    def fails(self, rule: Rule) -> Bools:
        """Where the oracle fails a kernel, under a rule. Shape [kernels, cases]."""
        return self.refused(rule.acceptance, rule.reference)

    def refused(self, acceptance: Callable[[float], AcceptanceRule], reference: Reference) -> Bools:
        """Where a kernel has no output to compare, or one that an acceptance rule rejects.

        ``acceptance`` gives the rule for an operator's absolute tolerance.
        """
        failed = self.columns["failure"] != ""
        tolerances = self.columns["tolerance"]
        for tolerance in np.unique(tolerances):
            passes, unknown = acceptance(float(tolerance)).judge(
                lambda name: self.columns[f"{reference}_{name}"]
            )
            assert not (unknown & ~failed).any(), "what is kept of an output decides these rules"
            failed = failed | ((tolerances == tolerance) & ~passes)
        return np.asarray(failed)

    def fair(self, rule: Rule) -> Bools:
        """The cases that can prove a kernel wrong: finite by intent, and the control passes."""
        return np.asarray(self.finite & ~self.fails(rule)[self.correct].any(axis=0))


def grids(trials: Trials, *, partial: bool = False) -> list[Grid]:
    """The trials of every operator, or with ``partial`` of those whose are finished.

    Raises :class:`SessionError` if some are not, and are not to be left out.
    """
    manifest = trials.session.manifest
    table = trials.table()
    made = []
    for operator in manifest["kernels"]:
        missing = unfinished(trials, operator)
        if missing and not partial:
            raise SessionError(
                f"the trials of {operator} on {missing[0]} are not finished",
                where=str(trials.root),
                hint="resume with the same `kernelassay illusion run` command; `score --partial`"
                " leaves them out",
            )
        if not missing:
            mine = table.filter(pa.compute.equal(table["operator"], operator))
            made.append(_grid(mine, *trials.operator(operator), manifest["strategies"]))
    return made


def unfinished(trials: Trials, operator: str) -> list[str]:
    """The strategies on which an operator's kernels have not all been run."""
    manifest = trials.session.manifest
    parts = -(-len(manifest["kernels"][operator]) // PART)
    return [
        name
        for name in manifest["strategies"]
        if not all(trials.has(operator, name, part) for part in range(parts))
    ]


def _grid(table: pa.Table, op: Op, subjects: Sequence[Subject], order: Sequence[str]) -> Grid:
    places = {one.name: at for at, one in enumerate(subjects)}
    ranks = {name: at for at, name in enumerate(order)}
    strategies, indices = table["strategy"].to_pylist(), table["index"].to_numpy()
    keys = sorted({(ranks[name], int(i)) for name, i in zip(strategies, indices, strict=True)})
    at_case = {key: at for at, key in enumerate(keys)}
    row_at = np.array([places[name] for name in table["kernel"].to_pylist()])
    case_at = np.array(
        [at_case[ranks[name], int(i)] for name, i in zip(strategies, indices, strict=True)]
    )
    shape = (len(subjects), len(keys))
    columns = {
        name: _spread(table[name], row_at, case_at, shape)
        for name, kind in zip(table.schema.names, table.schema.types, strict=True)
        if pa.types.is_floating(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or name in ("failure", "outcome", "output_digest", "dtype", "case", "values", "sizes")
    }
    for name, column in (("flagged", "findings"), ("changes", "changed")):
        some = pa.compute.greater(pa.compute.list_value_length(table[column]), 0)
        columns[name] = _spread(some, row_at, case_at, shape)
    return Grid(
        op=op,
        rows=tuple(subjects),
        strategies=tuple(order[rank] for rank, _ in keys),
        indices=np.array([index for _, index in keys], np.int64),
        values=tuple(columns["values"][0]),
        sizes=tuple(json.loads(text) for text in columns["sizes"][0]),
        columns=columns,
    )


def _spread(
    column: pa.ChunkedArray, rows: NDArray[Any], cases: NDArray[Any], shape: tuple[int, int]
) -> NDArray[Any]:
    """A column as kernels x cases; missing numbers, of executions without output, as zero."""
    if pa.types.is_string(column.type):
        made: NDArray[Any] = np.full(shape, "", dtype=object)
        made[rows, cases] = column.to_pylist()
        return made
    filled = column.fill_null(False if pa.types.is_boolean(column.type) else 0).to_numpy()
    made = np.zeros(shape, dtype=filled.dtype)
    made[rows, cases] = filled
    return made
