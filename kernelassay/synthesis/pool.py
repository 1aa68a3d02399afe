"""What a suite of one problem is chosen from: its fit inputs, and the mutants that each detects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay.analysis.score import MutantFacts, mutant_facts
from kernelassay.analysis.verdicts import (
    ORIGINAL,
    ROWS_HINT,
    anywhere,
    check_controls,
    exact_originals,
)
from kernelassay.errors import NothingToTestError, SessionError
from kernelassay.matrix import ProblemMatrix
from kernelassay.oracle import AcceptanceRule, Bools
from kernelassay.protocols import Protocol

OFFICIAL = "official"

Barred = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
"""Of a plan and the record of an input: why it may not be chosen; empty if it may."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A witnessed mutant, as far as a choice or a fold looks at it."""

    problem: str
    id: str
    rule: str
    family: str


@dataclass(frozen=True)
class Pool:
    """The inputs of a problem that a suite may hold, and what each detects.

    ``inputs`` are ordered by cost, the number of elements of the input tensors, and then by id, so
    that the first of equals is the cheapest. ``detects`` has shape [mutants, inputs]: by the
    acceptance rule, as its checker sees the output. ``official`` [mutants] tells what the official
    inputs detect together, fit or not. ``kept_out`` are the other planned inputs, with the reason,
    ``open`` the witnessed mutants left out, since a cell of theirs was lost or does not tell.
    ``correct`` counts the correct kernels that every one of :attr:`inputs` passes.
    """

    plan: Mapping[str, Any]
    inputs: tuple[str, ...]
    costs: NDArray[np.int64]
    mutants: tuple[Mutant, ...]
    detects: Bools
    official: Bools
    kept_out: Mapping[str, str]
    open: tuple[str, ...]
    correct: int

    @property
    def problem(self) -> str:
        """The problem's id."""
        return str(self.plan["problem"]["id"])

    @property
    def records(self) -> tuple[Mapping[str, Any], ...]:
        """The planned record of each of :attr:`inputs`."""
        planned = {record["id"]: record for record in self.plan["inputs"]}
        return tuple(planned[name] for name in self.inputs)


def own_rule(tolerance: float) -> Protocol:
    """``allclose`` at a tolerance, over all inputs: the rule where no protocol is named."""
    return Protocol(
        name=f"allclose at {tolerance:g}",
        what="allclose, as the official check does",
        source="",
        inputs=("*",),
        default=AcceptanceRule(tolerance),
        rules={},
    )


def pool(
    matrix: ProblemMatrix,
    protocol: Protocol,
    tolerance: float,
    barred: Barred = lambda plan, record: "",
) -> Pool:
    """The pool of a problem, its mutants witnessed at ``tolerance`` and judged as by ``protocol``.

    Of the protocol only rule and view count, not its inputs. An input is kept out that the validity
    gate refused, on which the rule does not pass a correct kernel, or that is ``barred``. Where the
    original of a relaxed style is rejected, the rejection of a mutant of it counts for nothing.

    Raises :class:`SessionError` if a cell of a witnessed mutant is implied, and
    :class:`ControlError` as :func:`check_controls`.
    """
    check_controls(matrix)
    rejected, unknown = matrix.rejected_by(protocol), matrix.open_to(protocol)
    records = {record["id"]: record for record in matrix.plan["inputs"]}
    kept_out = {
        name: why
        for name, record in records.items()
        if (why := _objection(matrix, record, rejected, unknown) or barred(matrix.plan, record))
    }
    inputs = sorted(records.keys() - kept_out.keys(), key=lambda name: (cost(records[name]), name))
    columns = [matrix.inputs.index(name) for name in inputs]
    facts = [fact for fact in mutant_facts((matrix,), (), tolerance) if fact.witnessed]
    rows = matrix.rows([fact.id for fact in facts])
    implied = anywhere(matrix.implied[rows][:, columns])
    if implied.any():
        raise SessionError(
            f"{int(implied.sum())} of {len(facts)} witnessed mutants have cells that were not"
            " measured: which inputs detect them is not known, and no suite can be chosen",
            where=matrix.problem,
            hint=ROWS_HINT,
        )
    counted = rejected[rows] & ~rejected[[_original_row(matrix, fact) for fact in facts]]
    told = ~anywhere(unknown[rows][:, columns])
    order = np.array(sorted(np.flatnonzero(told), key=lambda at: facts[at].id), dtype=np.intp)
    official = [matrix.inputs.index(n) for n in matrix.inputs if records[n]["group"] == OFFICIAL]
    return Pool(
        plan=matrix.plan,
        inputs=tuple(inputs),
        costs=np.array([cost(records[name]) for name in inputs], dtype=np.int64),
        mutants=tuple(
            Mutant(matrix.problem, facts[at].id, facts[at].rule, facts[at].family) for at in order
        ),
        detects=counted[order][:, columns],
        official=anywhere(counted[order][:, official]),
        kept_out=kept_out,
        open=tuple(sorted(facts[at].id for at in np.flatnonzero(~told))),
        correct=len(_correct(matrix)),
    )


def require_mutants(pools: Sequence[Pool]) -> None:
    """Raises :class:`NothingToTestError` if no pool has both a mutant and an input."""
    if not any(len(one.mutants) and len(one.inputs) for one in pools):
        raise NothingToTestError(
            "no problem has both a witnessed mutant and an input that may be chosen",
            hint="measure more mutants or inputs, or choose at another tolerance",
        )


def cost(record: Mapping[str, Any]) -> int:
    """The number of elements of an input's tensors."""
    return sum(prod(shape) for shape in record["shapes"])


def _objection(
    matrix: ProblemMatrix, record: Mapping[str, Any], rejected: Bools, unknown: Bools
) -> str:
    """Why an input is unfit for an acceptance rule, whatever it detects."""
    if not record["valid"]:
        return f"refused by the validity gate: {record['reason']}"
    return spoiled(matrix, record["id"], rejected, unknown)


def spoiled(matrix: ProblemMatrix, name: str, rejected: Bools, unknown: Bools) -> str:
    """Which correct kernel an acceptance rule rejects on an input, or may; empty for none.

    ``rejected`` and ``unknown`` are the rule's verdicts on all cells. [candidates, inputs].
    """
    at = matrix.inputs.index(name)
    for kernel in _correct(matrix):
        row = matrix.index[kernel]
        if rejected[row, at]:
            return f"the correct kernel {kernel} is rejected"
        if unknown[row, at]:
            return f"whether the correct kernel {kernel} is rejected is not known"
    return ""


def _correct(matrix: ProblemMatrix) -> tuple[str, ...]:
    """The correct kernels that a checker must pass: originals of exact styles, benign variants."""
    variants = (b["id"] for b in matrix.plan["benign"] if not b["unsupported"])
    return (*exact_originals(matrix), *variants)


def _original_row(matrix: ProblemMatrix, fact: MutantFacts) -> int:
    return matrix.index[f"{ORIGINAL}{fact.call}/{fact.style}"]
