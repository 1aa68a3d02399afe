"""The inputs of a problem on the CUDA executor: all values stay on the device."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelassay import cell, oracle
from kernelassay.compile.cubins import CubinImage
from kernelassay.execute.bench import BENIGN, Candidate, InputBench, ProblemBench, Written
from kernelassay.execute.cpu.geometry import launch_error
from kernelassay.execute.cuda.device import (
    IN_PLACE_BYTES,
    Arena,
    CudaDevice,
    Stretch,
    Survey,
    poison,
    span_bytes,
    without_marks,
)
from kernelassay.execute.cuda.driver import FaultError
from kernelassay.execute.cuda.models import Models
from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.execute.outputs import magnitude
from kernelassay.execute.splice import downstream
from kernelassay.inputs import InputSpec, digest, draw, moved
from kernelassay.kernel import (
    Call,
    Finding,
    Launch,
    LaunchPlan,
    PointerArgument,
    RunResult,
    Scalar,
)
from kernelassay.oracle import Verdict
from kernelassay.problem import LoadedProblem
from kernelassay.references import run_module

ORIGINAL_SECONDS = 30.0
BENIGN_SECONDS = 5.0
"""Correct kernels of a plainer style are slower than the one they are compared with."""
LIMIT_FACTOR = 20
LIMIT_FLOOR_SECONDS = 0.5

ALWAYS_CHECKED_BYTES = 64 << 20
CHECKING_SHARE = 0.1
"""After every run all values of an input are checked if they are no more than this, or if checking
takes no larger share of the run's time; else after every few."""

MAX_SCRATCH_BYTES = 4 << 30
OPEN_BYTES = 16 << 30
"""What the buffers of an input's calls may take; those used longest ago are given back."""


class CorruptedError(Exception):
    """A kernel wrote over values that are not its own: this process cannot be used any more."""


@dataclass(slots=True, eq=False)
class Bound:
    """A call on this input: scalar arguments, memory, and what the last run left in it.

    ``apart`` has the operands that do not lie in the arena, ``copied`` names those that are copies,
    wherever they lie; others are the values themselves.
    """

    call: Call
    scalars: Mapping[str, Scalar]
    arena: Arena
    apart: Mapping[str, Tensor]
    copied: tuple[str, ...]
    outputs: Mapping[str, str]
    starts: Mapping[str, Tensor]
    downstream: tuple[str, ...]
    survey: Survey
    pristine: NDArray[np.uint64]
    found: NDArray[np.uint64]

    def address(self, name: str) -> int:
        """Where a buffer of the call lies."""
        if name in self.apart:
            return int(self.apart[name].data_ptr())
        return self.arena.address(name)


class CudaInputBench(InputBench[Bound]):
    """See :class:`InputBench`; a limit is seconds. ``expired`` is called when one passes."""

    def __init__(
        self,
        bench: ProblemBench,
        device: CudaDevice,
        spec: InputSpec,
        options: CudaOptions,
        models: Models,
        expired: Callable[[], None],
    ) -> None:
        self._device = device
        self._options = options
        self._expired = expired
        self._open: OrderedDict[str, Bound] = OrderedDict()
        self._used = ""  # the call whose memory the last run was surveyed in
        self._models = models
        super().__init__(bench, spec)
        self._share_outputs()
        kept = [v for v in self._kept() if v.is_cuda and v.numel()]
        stretches = [Stretch.of(value) for value in kept]
        self.nbytes = sum(4 * s.words for s in stretches)
        self._checks = Survey(device, stretches)
        torch.cuda.synchronize()
        start = time.perf_counter()
        self._sound = self._look_at_values()
        self._checking_seconds = time.perf_counter() - start

    def _share_outputs(self) -> None:
        """Keep a reference that is the graph's own value once, where both have the same bits."""
        for index, name in enumerate(self.traced.outputs):
            value, reference = self.values[name], self.reference[index]
            alike = value.is_contiguous() and value.dtype == reference.dtype
            if alike and torch.equal(_bits(value), _bits(reference)):
                self.reference[index] = value

    def checked_after(self, seconds: float) -> bool:
        """Whether all values are looked at after a run that took ``seconds``."""
        few = self.nbytes <= ALWAYS_CHECKED_BYTES
        return few or self._checking_seconds <= CHECKING_SHARE * seconds

    @property
    def taken(self) -> int:
        """The bytes that it holds of the device's memory: all values, and buffers of calls."""
        return self.nbytes + self._held()

    def close(self) -> None:
        """Give the memory back."""
        self._open.clear()
        super().close()

    # ---- values --------------------------------------------------------------------------------

    def _draw(self, loaded: LoadedProblem) -> tuple[list[Any], dict[str, Tensor]]:
        here = torch.device("cuda")
        drawn_here = self._options.official and self._options.draw == "device"
        inputs = draw(loaded, self.spec, here if drawn_here else None)
        return [moved(value, here) for value in inputs], self._models.parameters(loaded, self.spec)

    def _input_digest(self) -> str:
        tensors = [x for x in self.inputs if isinstance(x, Tensor)]
        if sum(span_bytes(x) for x in tensors) <= IN_PLACE_BYTES:
            return digest(self.inputs)
        return f"device:{self._identity(tensors)}"

    def _identity(self, tensors: Sequence[Tensor]) -> str:
        """A digest of dense tensors' dtypes, shapes and bits, made on the device."""
        rows = self._read(Survey(self._device, [Stretch.of(x) for x in tensors]))
        state = hashlib.blake2b(digest_size=12)
        for tensor, row in zip(tensors, rows, strict=True):
            rest = span_bytes(tensor) % 4
            state.update(str((str(tensor.dtype), tuple(tensor.shape))).encode())
            state.update(row[:2].tobytes())
            if rest:
                flat = tensor.reshape(-1).view(torch.uint8)
                state.update(flat[-rest:].cpu().numpy().tobytes())
        return state.hexdigest()

    def _reference(
        self, loaded: LoadedProblem, state: Mapping[str, Tensor], dtype: torch.dtype
    ) -> list[Tensor]:
        model = self._models.model(loaded)
        return run_module(model, state, self.inputs, dtype, self.spec.seed, torch.device("cuda"))

    def _magnitude(self, value: Tensor) -> float:
        dense = value.is_cuda and value.dtype == torch.float32
        if dense and span_bytes(value) == value.numel() * 4:
            return self._device.largest(value)
        return magnitude(value)

    def _grade(self, outputs: Sequence[Tensor]) -> tuple[Verdict, Verdict]:
        pairs = [
            self._device.grade(o, r, e)
            for o, r, e in zip(outputs, self.reference, self.exact, strict=True)
        ]
        return oracle.merge([p[0] for p in pairs]), oracle.merge([p[1] for p in pairs])

    def _output_digest(self, outputs: Sequence[Tensor]) -> str:
        return self._identity(outputs)

    def _kept(self) -> list[Tensor]:
        """All tensors that a faulty kernel must not have changed; views of one count once."""
        found = {value.data_ptr(): value for value in (*self.reference, *self.exact)}
        for value in self.values.values():
            known = found.get(value.data_ptr())
            if known is None or span_bytes(known) < span_bytes(value):
                found[value.data_ptr()] = value
        return list(found.values())

    # ---- calls ---------------------------------------------------------------------------------

    def _bind(self, call_id: str) -> Bound:
        if call_id in self._open:
            self._open.move_to_end(call_id)
            bound = self._open[call_id]
            if call_id != self._used:
                self._tidy(bound)
        else:
            (call,) = (c for c in self.bench.calls if c.id == call_id)
            bound = self._open[call_id] = self._bound(call)
            while len(self._open) > 1 and self._held() > OPEN_BYTES:
                self._open.popitem(last=False)
        self._used = call_id
        return bound

    def _tidy(self, bound: Bound) -> None:
        """Mend what kernels left in a call's memory that its own last survey could not see.

        Those of other calls and inputs may have written there, far from what is their own: that is
        not held against the next one here.
        """
        bound.survey.queue()
        self._wait(ORIGINAL_SECONDS)
        self._after(bound, None)

    def resume(self) -> None:
        """Take the input up again after another one was in use.

        Raises :class:`CorruptedError` if a kernel that ran meanwhile wrote over its values.
        """
        self._used = ""
        self.require_sound()

    def _held(self) -> int:
        return sum(bound.arena.nbytes for bound in self._open.values())

    def _bound(self, call: Call) -> Bound:
        operands = {p: self.values[n].detach().contiguous() for p, n in call.operands}
        apart = {p: v for p, v in operands.items() if span_bytes(v) > IN_PLACE_BYTES}
        sizes = {p: self.values[n].numel() * self.values[n].element_size() for p, n in call.outputs}
        sizes |= {p: span_bytes(v) for p, v in operands.items() if p not in apart}
        arena = Arena(sizes, self.spec.surroundings)
        for parameter, value in operands.items():
            if parameter not in apart:
                _restore(arena, parameter, value)
        names = dict(call.operands)
        copied = tuple(
            p
            for p, v in operands.items()
            if p not in apart or v.data_ptr() != self.values[names[p]].data_ptr()
        )
        stretches = [
            Stretch(arena.address(p), arena.words(p), self.values[n].element_size())
            for p, n in call.outputs
        ]
        stretches += [guard for _, guard in arena.guards()]
        stretches += [
            Stretch.of(apart[p]) if p in apart else Stretch(arena.address(p), arena.words(p))
            for p in copied
        ]
        survey = Survey(self._device, stretches)
        found = self._read(survey)
        return Bound(
            call=call,
            scalars=self.bench.bind(call, self.spec.overrides, self.traced),
            arena=arena,
            apart=apart,
            copied=copied,
            outputs=dict(call.outputs),
            starts={p: self.values[n].detach().contiguous() for p, n in call.starts},
            downstream=downstream(call, self.traced),
            survey=survey,
            pristine=found[len(stretches) - len(copied) :, :2],
            found=found,
        )

    def _read(self, survey: Survey) -> NDArray[np.uint64]:
        survey.queue()
        self._wait(ORIGINAL_SECONDS)
        return survey.read()

    def _scalars(self, bound: Bound) -> Mapping[str, Scalar]:
        return bound.scalars

    def _limit(self, result: RunResult) -> float:
        return max(LIMIT_FLOOR_SECONDS, LIMIT_FACTOR * self.seconds)

    def _written(self, bound: Bound) -> object:
        return bound.found[: len(bound.outputs), :2].tobytes()

    def _unwritten(self, bound: Bound) -> int:
        return int(bound.found[: len(bound.outputs), 2].sum())

    def _outputs(self, bound: Bound, *, zeroed: bool) -> Written:
        found = {}
        for parameter, name in bound.outputs.items():
            original = self.values[name]
            value = bound.arena.buffers[parameter].view(original.dtype).view(original.shape)
            found[parameter] = (name, without_marks(value) if zeroed else value)
        return found

    def _downstream(self, bound: Bound) -> Sequence[str]:
        return bound.downstream

    # ---- runs ----------------------------------------------------------------------------------

    def _execute(
        self, candidate: Candidate, bound: Bound, plan: LaunchPlan, limit: float | None, order: str
    ) -> RunResult:
        image = candidate.image
        assert isinstance(image, CubinImage)
        arities = {kernel: len(types) for kernel, types in image.parameters}
        for step in plan.steps:
            if isinstance(step, Launch):
                error = launch_error(step, arities[step.kernel])
                if error is not None:
                    return RunResult(cell.LAUNCH_FAILURE, error, (), 0, ())
        for one in plan.scratch:
            if not 0 <= one.nbytes <= MAX_SCRATCH_BYTES:
                what = f"cudaMalloc of {one.nbytes} bytes"
                return RunResult(cell.LAUNCH_FAILURE, what, (), 0, ())
        try:
            scratch = self._scratch(plan)
        except torch.OutOfMemoryError:
            wanted = sum(one.nbytes for one in plan.scratch)
            if wanted <= self._device.total_bytes:
                raise  # others hold what it could have had alone
            what = f"cudaMalloc of {wanted} bytes in all"
            return RunResult(cell.OUT_OF_MEMORY, what, (), 0, ())
        start = time.perf_counter()
        self._reset(bound)
        try:
            self._steps(image, plan, bound, scratch)
        except FaultError as fault:
            if not fault.refused:
                raise
            self._tidy(bound)  # launches before the refused one have run
            return RunResult(fault.outcome, fault.detail, (), 0, ())
        bound.survey.queue()
        if limit is None:
            limit = ORIGINAL_SECONDS
        elif candidate.role == BENIGN:
            limit = max(limit, BENIGN_SECONDS)
        self._wait(limit)
        self.seconds = time.perf_counter() - start
        return self._after(bound, scratch)

    def _reset(self, bound: Bound) -> None:
        for parameter, name in bound.outputs.items():
            buffer = bound.arena.buffers[parameter]
            if parameter in bound.starts:
                _restore(bound.arena, parameter, bound.starts[parameter])
            else:
                poison(buffer, self.values[name].element_size())
        self._device.scrub(bound.arena.pattern)

    def _scratch(self, plan: LaunchPlan) -> Arena | None:
        if not plan.scratch:
            return None
        # Scratch stays apart from the other buffers: how much there is depends on the mutant.
        surroundings = "finite" if self.spec.surroundings == "packed" else self.spec.surroundings
        return Arena({s.name: max(4, s.nbytes) for s in plan.scratch}, surroundings)

    def _steps(
        self, image: CubinImage, plan: LaunchPlan, bound: Bound, scratch: Arena | None
    ) -> None:
        def address(pointer: PointerArgument) -> int:
            own = scratch is not None and pointer.buffer in scratch.buffers
            base = scratch.address(pointer.buffer) if own and scratch else None
            return (bound.address(pointer.buffer) if base is None else base) + pointer.byte_offset

        driver = self._device.driver
        for step in plan.steps:
            if isinstance(step, Launch):
                values = tuple(
                    address(a) if isinstance(a, PointerArgument) else a for a in step.arguments
                )
                function = driver.function(image, step.kernel)
                driver.launch(function, step.grid, step.block, step.shared_bytes, values)
            else:
                driver.fill(address(step.buffer), step.value, step.nbytes)

    def _after(self, bound: Bound, scratch: Arena | None) -> RunResult:
        """Read the survey: damaged guards and changed operands are findings, and are mended."""
        bound.found = bound.survey.read()
        findings: list[Finding] = []
        start = len(bound.outputs)
        for index, (where, _) in enumerate(bound.arena.guards()):
            damage = int(bound.found[start + index, 3])
            if damage:
                bound.arena.mend(index)
                findings.append(Finding("oob-global-write", damage, f"words {where}"))
        if scratch is not None:
            findings += self._scratch_damage(scratch)
        start += len(bound.arena.guards())
        written = self._changed_operands(bound, start)
        findings += [Finding("input-write", 1, f"buffer {name}") for name in written]
        return RunResult(cell.OK, "", tuple(findings), 0, written)

    def _scratch_damage(self, scratch: Arena) -> list[Finding]:
        guards = scratch.guards()
        rows = self._read(Survey(self._device, [stretch for _, stretch in guards]))
        return [
            Finding("oob-global-write", int(row[3]), f"words {where}")
            for (where, _), row in zip(guards, rows, strict=True)
            if row[3]
        ]

    def _changed_operands(self, bound: Bound, start: int) -> tuple[str, ...]:
        changed = (bound.found[start:, :2] != bound.pristine).any(axis=1)
        names = tuple(n for n, c in zip(bound.copied, changed, strict=True) if c)
        nodes = dict(bound.call.operands)
        for name in names:
            value = self.values[nodes[name]].detach()
            if name in bound.apart:
                bound.apart[name].copy_(value)
            else:
                _restore(bound.arena, name, value.contiguous())
        return names

    def steady(self, candidate: Candidate, first: cell.Cell) -> Finding | None:
        """Run a candidate again right after ``first``; the finding that its output then differs."""
        bound = self._bind(candidate.call)
        before = self._written(bound)
        baseline = self._baseline(candidate.call, candidate.style)
        result = self._launch(candidate, bound, baseline.limit, self.spec.order)
        if result.outcome == first.outcome and self._written(bound) == before:
            return None
        return Finding("order-dependent", 1, "two runs differ")

    def require_sound(self) -> None:
        """Raise :class:`CorruptedError` if a value that no kernel owns has changed."""
        if not np.array_equal(self._look_at_values(), self._sound):
            raise CorruptedError

    def _look_at_values(self) -> NDArray[np.uint64]:
        return self._read(self._checks)[:, :2]

    def _wait(self, seconds: float) -> None:
        self._device.driver.wait(seconds, self._expired)


def _bits(value: Tensor) -> Tensor:
    """The bytes of a contiguous tensor, in words where that is possible."""
    words = value.element_size() % 4 == 0
    return value.reshape(-1).view(torch.int32 if words else torch.uint8)


def _restore(arena: Arena, name: str, value: Tensor) -> None:
    arena.buffers[name].copy_(value.reshape(-1).view(torch.uint8))
