"""Mutants that run while the gate has an input prepared.

To prepare an input of official size and to run the correct kernels on it takes as long as some
mutants do. With lazy cells one lane has a problem to itself, input by input: there the gate runs,
beside the correct kernels, the mutants that the inputs before do not make needless, and what it
measured counts as the run's own (:mod:`kernelassay.engines.gated`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelassay import cell
from kernelassay.execute.bench import Candidate
from kernelassay.execute.worker import UnitResult
from kernelassay.inputs import InputSpec
from kernelassay.lazy import Shown, held, implied, shown
from kernelassay.protocols import Protocol


class GateMutants:
    """The mutants of a problem in planning, and what the inputs so far show of them.

    ``specs`` are all inputs to come, in their order, ``protocols`` those to decide. An input that
    turns out not to be valid judges nobody; until then it counts as one that does, so that more is
    measured than needed, not less.
    """

    def __init__(
        self,
        mutants: Sequence[Candidate],
        specs: Sequence[InputSpec],
        protocols: Sequence[Protocol],
    ) -> None:
        self._mutants = tuple(mutants)
        self._specs = tuple(specs)
        self._protocols = tuple(protocols)
        self._shown: list[Shown] = []

    def wanted(self, base: Mapping[str, Any], spec: InputSpec) -> tuple[Candidate, ...]:
        """The mutants to run on an input, given the plan as far as it is made."""
        plan = self._foreseen(base)
        needless = implied(plan, spec.id, self._shown, held(plan, self._protocols))
        return tuple(mutant for mutant in self._mutants if mutant.id not in needless)

    def measured(self, base: Mapping[str, Any], unit: UnitResult) -> None:
        """Note the cells of the last input of the plan, if it is valid."""
        record = base["inputs"][-1]
        if record["valid"]:
            table = cell.table([*unit.fixed, *unit.cells])
            self._shown.append(shown(self._foreseen(base), record["id"], table, self._protocols))

    def _foreseen(self, base: Mapping[str, Any]) -> dict[str, Any]:
        """The plan with the inputs to come, as if they were valid."""
        known = {record["id"] for record in base["inputs"]}
        to_come = [
            {"id": spec.id, "valid": True, "benign_worst": 0.0, "style_worst": {}}
            for spec in self._specs
            if spec.id not in known
        ]
        return {**base, "inputs": [*base["inputs"], *to_come]}
