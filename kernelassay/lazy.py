"""Which cells of a mutant need no measuring, told by those that are measured already.

A protocol's verdict on a mutant needs the inputs up to the first one that it rejects the mutant on;
a proof of the fault needs one witness. So a mutant runs on an input only if

- a protocol that judges by this input has not rejected the mutant on an earlier one of its own, or
- no earlier input has proven the mutant wrong (by its output at :data:`WITNESS_TOLERANCE`, or by a
  stop).

Verdicts of all such protocols, and which mutants are witnessed, flagged only or unobserved at that
tolerance, are then those of whole rows. Inputs of a problem must be measured in plan order. All is
decided from stored cells, so that a resumed run decides alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa

from kernelassay.matrix import Bools, ProblemMatrix, measured, of_tables
from kernelassay.protocols import DEFAULT, Protocol
from kernelassay.session import inputs_of

ROWS, LAZY = "rows", "lazy"
"""Which cells of a mutant are measured: its whole row, or what is needed of it."""

WITNESS_TOLERANCE = 1e-2


@dataclass(frozen=True, slots=True)
class Shown:
    """What the cells of one input show: who is rejected, by protocol, and who is proven wrong."""

    input: str
    rejected: Mapping[str, frozenset[str]]
    witnessed: frozenset[str]
    stopped: frozenset[str]


def shown(
    plan: Mapping[str, Any], input_id: str, cells: pa.Table, protocols: Iterable[Protocol]
) -> Shown:
    """Read one input's cells of a planned problem."""
    matrix = of_tables(plan, {input_id: cells})
    return Shown(
        input_id,
        {protocol.name: _names(matrix, matrix.rejected_by(protocol)) for protocol in protocols},
        _names(matrix, matrix.witnessing(WITNESS_TOLERANCE)),
        _names(matrix, matrix.stopping(WITNESS_TOLERANCE)),
    )


def _names(matrix: ProblemMatrix, cells: Bools) -> frozenset[str]:
    return frozenset(matrix.candidates[row] for row in np.flatnonzero(cells[:, 0]))


def held(plan: Mapping[str, Any], protocols: Iterable[Protocol]) -> tuple[Protocol, ...]:
    """The protocols all of whose inputs a planned problem has."""
    return tuple(protocol for protocol in protocols if not protocol.missing_in(plan))


def implied(
    plan: Mapping[str, Any],
    input_id: str,
    earlier: Sequence[Shown],
    protocols: Sequence[Protocol],
) -> dict[str, str]:
    """The mutants that need not run on an input, with what makes it needless.

    ``earlier`` are the inputs before it in plan order, ``protocols`` those the problem
    :func:`held` the inputs of.
    """
    before = {
        protocol.name: set(takewhile(lambda name: name != input_id, order))
        for protocol in protocols
        if input_id in (order := protocol.inputs_in(plan))
    }
    found: dict[str, str] = {}
    for mutant in filter(measured, plan["mutants"]):
        name = mutant["id"]
        proof = next(_proofs(name, earlier), "")
        rejections = {
            protocol: next(
                (s.input for s in earlier if s.input in own and name in s.rejected[protocol]), ""
            )
            for protocol, own in before.items()
        }
        if proof and all(rejections.values()):
            found[name] = _reason(rejections) or proof
    return found


def _proofs(mutant: str, earlier: Iterable[Shown]) -> Iterator[str]:
    for one in earlier:
        if mutant in one.witnessed:
            yield f"witnessed on {one.input}"
        elif mutant in one.stopped:
            yield f"stopped on {one.input}"


def _reason(rejections: Mapping[str, str]) -> str:
    by_input: dict[str, list[str]] = {}
    for protocol, name in rejections.items():
        by_input.setdefault(name, []).append(protocol)
    parts = (f"by {', '.join(names)} on {name}" for name, names in by_input.items())
    return f"rejected {'; '.join(parts)}" if by_input else ""


@dataclass(slots=True)
class Ledger:
    """:func:`implied` for one problem whose cells are read back as they are needed, each once.

    ``read`` gives the stored cells of an input.
    """

    plan: Mapping[str, Any]
    read: Callable[[str], pa.Table]
    protocols: Sequence[Protocol] = DEFAULT
    _shown: dict[str, Shown] = field(default_factory=dict)

    def implied(self, input_id: str) -> dict[str, str]:
        """The mutants that need not run on an input; those before it must be stored."""
        protocols = held(self.plan, self.protocols)
        names = (record["id"] for record in inputs_of(self.plan))
        earlier = takewhile(lambda name: name != input_id, names)
        return implied(self.plan, input_id, [self._of(n, protocols) for n in earlier], protocols)

    def _of(self, name: str, protocols: Sequence[Protocol]) -> Shown:
        if name not in self._shown:
            self._shown[name] = shown(self.plan, name, self.read(name), protocols)
        return self._shown[name]
