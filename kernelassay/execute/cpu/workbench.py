"""The CPU executor's side of a worker: kernels run in the worker's own process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelassay import cell
from kernelassay.errors import KernelassayError
from kernelassay.execute.bench import ProblemBench
from kernelassay.execute.cpu.bench import CpuInputBench
from kernelassay.execute.cpu.device import CpuDevice
from kernelassay.execute.messages import Measure, Prepared
from kernelassay.execute.outputs import order_finding, other_order, without_output
from kernelassay.inputs import InputSpec
from kernelassay.problem import Problem
from kernelassay.timing import Timing


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
        """The replies to a request, timed."""
        start = time.perf_counter()
        prepared = CpuInputBench(self.bench, self._device, request.spec)
        facts = prepared.facts()
        ready = time.perf_counter()
        yield facts
        if not facts.runs:
            return
        try:
            begun = time.perf_counter()
            cells = [*prepared.prepare(request.originals).values(), *prepared.controls()]
            fixed = time.perf_counter() - begun
            timing = Timing(ready - start, fixed, prepared.kernel_seconds)
            yield Prepared(cells, timing, runs=2 if request.check_order else 1)
            for candidate in request.candidates:
                start = time.perf_counter()
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
                yield result, time.perf_counter() - start
        finally:
            prepared.close()
