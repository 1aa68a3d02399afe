"""One execution of a kernel on one case, judged: what replaying and shrinking do alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay import cell
from kernelassay.errors import DeviceError
from kernelassay.execute.execution import Bench, Execution
from kernelassay.illusion.cases import Case, inputs
from kernelassay.illusion.op import Op
from kernelassay.illusion.oracle import Failure, Judgement, Rule, judge
from kernelassay.oracle import first_wrong


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one execution. ``failure`` is "" where the rule accepts the output."""

    case: Case
    inputs: tuple[NDArray[Any], ...]
    reference: NDArray[np.float64]
    execution: Execution
    judged: Judgement
    failure: Failure

    @property
    def kind(self) -> tuple[str, str]:
        """What two failures have in common that are of one kind: why, and the outcome."""
        return self.failure, self.execution.outcome


@dataclass(frozen=True, slots=True)
class Examiner:
    """A kernel, and the rule that decides by the tolerance of its operator."""

    op: Op
    rule: Rule

    def run(self, bench: Bench, case: Case, given: Sequence[NDArray[Any]] | None = None) -> Trial:
        """Execute the kernel on a case, or on ``given`` arrays in its place, and judge it.

        Raises as :meth:`Op.expected`, and :class:`DeviceError` if the device failed and not the
        kernel.
        """
        arrays = tuple(inputs(case, self.op.schema) if given is None else given)
        reference = self.op.expected(arrays, case.sizes)
        execution = bench.run(self.op.text, arrays)
        if execution.outcome == cell.INFRASTRUCTURE:
            raise DeviceError(
                f"could not run the kernel: {execution.detail}",
                where=self.op.name,
                hint="this says nothing of the kernel; run it again",
            )
        judged = judge(execution, reference, self.op, case.dtype)
        failure = self.rule.failure(judged, self.op.tolerance(case.dtype))
        return Trial(case, arrays, reference, execution, judged, failure)

    def wrong(self, trial: Trial) -> str:
        """What is wrong with the output in words, the first wrong element named; "" for nothing."""
        output = trial.execution.output
        if not trial.failure or output is None or trial.judged.rounded is None:
            return trial.judged.detail
        reference: NDArray[Any] = trial.reference
        if self.rule.reference == "rounded":
            with np.errstate(over="ignore"):
                reference = reference.astype(output.dtype)
        bound = self.rule.acceptance(self.op.tolerance(trial.case.dtype)).tolerance
        named = first_wrong([output], [reference], trial.execution.unwritten, bound, relative=False)
        if named or not trial.failure:
            return named
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(output))[0])
        return f"output 0 {list(place)} is {output[place]}, which the rule does not accept"
