"""The inputs of a problem on the CPU executor: buffers in guarded windows, grading in NumPy."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernelassay import oracle
from kernelassay.execute.bench import Candidate, InputBench, ProblemBench, Written
from kernelassay.execute.cpu.bound import Bound, BoundCalls
from kernelassay.execute.cpu.build import Image
from kernelassay.execute.cpu.device import CpuDevice
from kernelassay.execute.outputs import magnitude, other_order
from kernelassay.inputs import InputSpec, digest, materialise
from kernelassay.kernel import LaunchPlan, RunResult, Scalar
from kernelassay.oracle import Verdict, output_digest
from kernelassay.problem import LoadedProblem
from kernelassay.references import run_model

ORIGINAL_FUEL = 200_000_000
FUEL_FACTOR = 20
FUEL_FLOOR = 10_000


class CpuInputBench(InputBench[Bound]):
    """See :class:`InputBench`; a limit is fuel."""

    def __init__(self, bench: ProblemBench, device: CpuDevice, spec: InputSpec) -> None:
        super().__init__(bench, spec)
        self._device = device
        calls = {call.id: call for call in bench.calls}
        self._calls = BoundCalls(
            device,
            calls,
            self.traced,
            self.values,
            lambda call: bench.bind(call, spec.overrides, self.traced),
        )

    def close(self) -> None:
        """Give the buffers back."""
        self._calls.close()
        super().close()

    def _draw(self, loaded: LoadedProblem) -> tuple[list[Any], dict[str, Tensor]]:
        return materialise(loaded, self.spec)

    def _input_digest(self) -> str:
        return digest(self.inputs)

    def _reference(
        self, loaded: LoadedProblem, state: Mapping[str, Tensor], dtype: torch.dtype
    ) -> list[Tensor]:
        return run_model(loaded, state, self.inputs, dtype, self.spec.seed)

    def _magnitude(self, value: Tensor) -> float:
        return magnitude(value)

    def _grade(self, outputs: Sequence[Tensor]) -> tuple[Verdict, Verdict]:
        arrays = [output.numpy() for output in outputs]
        seen, exact = (
            [oracle.grade(o, r.numpy()) for o, r in zip(arrays, references, strict=True)]
            for references in (self.reference, self.exact)
        )
        return oracle.merge(seen), oracle.merge(exact)

    def _output_digest(self, outputs: Sequence[Tensor]) -> str:
        return output_digest([output.numpy() for output in outputs])

    def _bind(self, call_id: str) -> Bound:
        return self._calls.bind(call_id)

    def _scalars(self, bound: Bound) -> Mapping[str, Scalar]:
        return bound.scalars

    def _execute(
        self, candidate: Candidate, bound: Bound, plan: LaunchPlan, limit: float | None, order: str
    ) -> RunResult:
        for parameter, (_, view) in bound.outputs.items():
            oracle.poison(view)
            if parameter in bound.starts:
                view[...] = bound.starts[parameter]
        image = candidate.image
        assert isinstance(image, Image)
        self._device.load(image)
        start = time.perf_counter()
        result = self._device.run(
            image,
            plan,
            bound.buffers,
            fuel=ORIGINAL_FUEL if limit is None else int(limit),
            order=order,
            surroundings=self.spec.surroundings,
        )
        self.seconds = time.perf_counter() - start
        for parameter in result.written_inputs:
            if parameter in bound.operands:
                bound.buffers[parameter].array[:] = bound.operands[parameter]
        return result

    def _limit(self, result: RunResult) -> float:
        return max(FUEL_FLOOR, FUEL_FACTOR * result.fuel)

    def _written(self, bound: Bound) -> object:
        return [view.tobytes() for _, view in bound.outputs.values()]

    def _unwritten(self, bound: Bound) -> int:
        marks = (oracle.unwritten(view) for _, view in bound.outputs.values())
        return sum(int(np.count_nonzero(mark)) for mark in marks)

    def _outputs(self, bound: Bound, *, zeroed: bool) -> Written:
        found = {}
        for parameter, (name, view) in bound.outputs.items():
            array = view.copy()
            if zeroed:
                array.reshape(-1)[oracle.unwritten(view)] = 0
            found[parameter] = (name, torch.from_numpy(array))
        return found

    def _downstream(self, bound: Bound) -> Sequence[str]:
        return bound.downstream

    def _tolerated(self, original: Candidate, bound: Bound, result: RunResult) -> frozenset[str]:
        """Races of a user's own kernel that do not decide its output.

        Real kernels let the lanes of a warp store one value to one place. Such a kernel is usable
        if its output is the same in another thread order; its mutants are then not flagged for
        what it does itself.
        """
        races = frozenset(f.kind for f in result.findings if f.kind.startswith("race-"))
        if not races or self.bench.problem.kernel is None:
            return frozenset()
        outputs = [view.copy() for _, view in bound.outputs.values()]
        self._launch(original, bound, None, other_order(self.spec.order))
        views = [view for _, view in bound.outputs.values()]
        same = all(a.tobytes() == b.tobytes() for a, b in zip(outputs, views, strict=True))
        for kept, view in zip(outputs, views, strict=True):
            view[...] = kept
        return races if same else frozenset()
