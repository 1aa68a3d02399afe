"""The CPU executor's side of a worker: kernels run in the worker's own process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelassay import cell
from kernelassay.errors import KernelassayError
from kernelassay.execute.bench import ProblemBench
from kernelassay.execute.cpu.bench import CpuInputBench
from kernelassay.execute.cpu.device import CpuDevice
from kernelassay.execute.messages import Measure
from kernelassay.execute.outputs import order_finding, other_order, without_output
from kernelassay.inputs import InputSpec
from kernelassay.problem import Problem


class CpuWorkbench:
    """See :class:`kernelassay.execute.toolbox.Workbench`."""

    def __init__(self, problem: Problem, runtime: Path) -> None:
        self._device = CpuDevice(runtime)
        self.bench = ProblemBench(problem)

    def close(self) -> None:
        """Give back the device's pooled memory."""
        self._device.close()

    def expect(self, specs: Sequence[InputSpec]) -> None:
        """Nothing can be done ahead in the process that measures."""

    def measure(self, request: Measure) -> Iterator[Any]:
        """The input's facts, the cells of originals and controls, and one per candidate."""
        prepared = CpuInputBench(self.bench, self._device, request.spec)
        facts = prepared.facts()
        yield facts
        if not facts.finite:
            return
        try:
            yield [*prepared.prepare(request.originals).values(), *prepared.controls()]
            for candidate in request.candidates:
                try:
                    result = prepared.run(candidate)
                    if request.check_order:
                        usual = request.spec.order
                        order = other_order(usual)
                        other = prepared.run(candidate, order=order)
                        what = f"{usual} and {order} thread order differ"
                        finding = order_finding(result, other, what)
                        if finding is not None:
                            result = replace(result, findings=(*result.findings, finding))
                except KernelassayError as error:
                    result = without_output(
                        candidate.id, request.spec.id, cell.INFRASTRUCTURE, str(error)
                    )
                yield result
        finally:
            prepared.close()
