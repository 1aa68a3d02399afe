"""One problem on one input, ready to run candidates by splicing.

The traced graph runs once in PyTorch and every value is kept. A candidate replaces one call: its
kernel runs on the kept operands, and only if its output differs in bits from the correct
kernel's are the nodes downstream computed again. That is exact, and tells infection from
propagation.

This module executes problem code, so it is used inside worker processes only.
"""

from __future__ import annotations

import hashlib
from collections import ChainMap, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernelassay import cell, oracle
from kernelassay.cell import Cell
from kernelassay.compile.launcher import Launcher, LaunchError, parse_launcher
from kernelassay.errors import ProblemError, UnsupportedError
from kernelassay.execute.cpu.build import Image
from kernelassay.execute.cpu.device import Buffer, CpuDevice
from kernelassay.inputs import InputSpec, digest, materialise
from kernelassay.kernel import Call, Finding, Launch, RunResult, Scalar
from kernelassay.oracle import Verdict
from kernelassay.problem import LoadedProblem, Problem, load
from kernelassay.references import run_model
from kernelassay.substrate.lowering import bind, lower
from kernelassay.trace import Traced, evaluate, meta, trace

MODEL_SEED = 42
ORIGINAL_FUEL = 200_000_000
FUEL_FACTOR = 20
OPEN_WINDOWS = 128
"""How many buffers the calls of a bench hold at once: half of the device's windows."""
FUEL_FLOOR = 10_000

ORIGINAL = "original"
BENIGN = "benign"
MUTANT = "mutant"
CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel that stands in for one call: ``source`` gives the launches, ``image`` the code."""

    id: str
    role: str
    call: str
    source: str
    image: Image


@dataclass(frozen=True, slots=True)
class InputFacts:
    """What the validity gate needs to know of one input, measured on the references alone.

    ``reference_error`` is the critical tolerance between the float32 and float64 references,
    ``magnitude`` the largest finite magnitude among the values of the traced graph.
    """

    id: str
    digest: str
    shapes: tuple[tuple[int, ...], ...]
    output_shape: tuple[int, ...]
    finite: bool
    reference_error: float
    magnitude: float
    problem: str


@dataclass(slots=True)
class _Baseline:
    """A call's correct run on this input.

    ``buffers`` and the views of ``outputs`` exist while the call is open (see ``_open``).
    """

    call: Call
    scalars: Mapping[str, Scalar]
    operands: dict[str, NDArray[Any]]
    buffers: dict[str, Buffer]
    outputs: dict[str, tuple[str, torch.Tensor, NDArray[Any]]]
    downstream: tuple[str, ...]
    raw: dict[str, bytes]
    fuel: int
    cell: Cell


class ProblemBench:
    """A loaded problem: its calls at the official shapes, and its inputs on demand."""

    def __init__(self, problem: Problem, device: CpuDevice | None) -> None:
        self.problem = problem
        self.device = device
        self._loaded: dict[tuple[tuple[str, int], ...], LoadedProblem] = {}
        self._traced: dict[Any, Traced] = {}
        self._launchers: dict[str, Launcher] = {}
        loaded = self.loaded(())
        self.traced = self.trace((), loaded, loaded.draw(MODEL_SEED))
        self.calls: tuple[Call, ...] = lower(self.traced)

    def loaded(self, overrides: tuple[tuple[str, int], ...]) -> LoadedProblem:
        """The problem's module with some sizes changed (cached)."""
        if overrides not in self._loaded:
            self._loaded[overrides] = load(self.problem, dict(overrides))
        return self._loaded[overrides]

    def trace(
        self, overrides: tuple[tuple[str, int], ...], loaded: LoadedProblem, inputs: Sequence[Any]
    ) -> Traced:
        """The graph at some sizes, cached: it depends on the inputs' layout, not their values."""
        layout = tuple(
            (x.shape, x.stride(), x.dtype) if isinstance(x, torch.Tensor) else x for x in inputs
        )
        key = (overrides, layout)
        if key not in self._traced:
            self._traced[key] = trace(loaded.build_model(MODEL_SEED), tuple(inputs))
        return self._traced[key]

    def launcher(self, candidate_id: str, source: str) -> Launcher:
        """The parsed ``launch`` function of a candidate (cached across inputs)."""
        if candidate_id not in self._launchers:
            self._launchers[candidate_id] = parse_launcher(source)
        return self._launchers[candidate_id]


class InputBench:
    """One input of a problem: references, kept values, and the correct run of each call."""

    def __init__(self, bench: ProblemBench, spec: InputSpec) -> None:
        self.bench = bench
        self.spec = spec
        loaded = bench.loaded(spec.overrides)
        self.inputs, state = materialise(loaded, spec)
        self.digest = digest(self.inputs)
        with torch.no_grad():
            self.reference = run_model(loaded, state, self.inputs, torch.float32, spec.seed)
            self.exact = run_model(loaded, state, self.inputs, torch.float64, spec.seed)
            self.traced = bench.trace(spec.overrides, loaded, self.inputs)
            if self.traced.signature() != bench.traced.signature():
                raise UnsupportedError(
                    "the traced graph has another structure at these sizes",
                    where=f"{bench.problem.id} {spec.id}",
                )
            self.values = self.traced.run(state, self.inputs, spec.seed)
        self._baselines: dict[str, _Baseline] = {}
        self._opened: OrderedDict[str, _Baseline] = OrderedDict()

    def facts(self) -> InputFacts:
        """The reference-only facts of this input."""
        verdict = oracle.merge(
            [oracle.grade(r, e) for r, e in zip(self.reference, self.exact, strict=True)]
        )
        finite = verdict.out_nan + verdict.out_inf + verdict.ref_nan + verdict.ref_inf == 0
        return InputFacts(
            id=self.spec.id,
            digest=self.digest,
            shapes=tuple(tuple(x.shape) for x in self.inputs if isinstance(x, torch.Tensor)),
            output_shape=tuple(self.reference[0].shape),
            finite=finite,
            reference_error=verdict.critical_tolerance,
            magnitude=max((_magnitude(value) for value in self.values.values()), default=0.0),
            problem="" if finite else "the reference is not finite",
        )

    def prepare(self, originals: Mapping[str, Candidate]) -> dict[str, Cell]:
        """Run each call's correct kernel; returns its cell per call id."""
        return {call.id: self._baseline(call, originals[call.id]).cell for call in self.bench.calls}

    def run(self, candidate: Candidate, order: str = "forward") -> Cell:
        """Run one candidate. :meth:`prepare` must have run before."""
        return self._spliced(candidate, self._open(self._baselines[candidate.call]), order)

    def controls(self) -> Iterator[Cell]:
        """The pseudo-candidates with a known verdict."""
        shape = self.reference[0].shape
        yield self._control("zeros", [np.zeros_like(r) for r in self.reference])
        if self.reference[0].dtype.kind == "f":
            yield self._control("nan", [np.full_like(r, np.nan) for r in self.reference])
        yield self._control("forced-failure", [_far_off(r) for r in self.reference])
        for position, value in enumerate(self.inputs):
            if isinstance(value, torch.Tensor) and value.shape == shape:
                copied = value.numpy().astype(self.reference[0].dtype)
                yield self._control(f"copy-input-{position}", [copied, *self.reference[1:]])

    def close(self) -> None:
        """Give the buffers back."""
        while self._opened:
            self._shut()
        self._baselines.clear()

    def _control(self, name: str, outputs: Sequence[NDArray[Any]]) -> Cell:
        seen, exact = self._grade(outputs)
        return Cell(
            candidate=f"control/{name}",
            input=self.spec.id,
            outcome=cell.OK,
            detail="",
            infected=True,
            propagated=True,
            unwritten=0,
            findings=(),
            output_digest=_digest(outputs),
            seen=seen,
            poisoned=seen,
            exact=exact,
        )

    def _grade(self, outputs: Sequence[NDArray[Any]]) -> tuple[Verdict, Verdict]:
        seen = [oracle.grade(o, r) for o, r in zip(outputs, self.reference, strict=True)]
        exact = [oracle.grade(o, r) for o, r in zip(outputs, self.exact, strict=True)]
        return oracle.merge(seen), oracle.merge(exact)

    def _baseline(self, call: Call, original: Candidate) -> _Baseline:
        if call.id not in self._baselines:
            baseline = self._baselines[call.id] = self._bind(call)
            self._open(baseline)
            result = self._launch(original, baseline, ORIGINAL_FUEL, "forward")
            if result.outcome != cell.OK:
                raise ProblemError(
                    f"the correct kernel of {call.id} ended with {result.outcome}: {result.detail}",
                    where=f"{self.bench.problem.id} {self.spec.id}",
                )
            baseline.fuel = max(FUEL_FLOOR, FUEL_FACTOR * result.fuel)
            baseline.raw = {p: a.tobytes() for p, (_, _, a) in baseline.outputs.items()}
            baseline.cell = self._finish(original, baseline, result, infected=True)
        return self._baselines[call.id]

    def _bind(self, call: Call) -> _Baseline:
        scalars = bind(call, self.traced)
        operands: dict[str, NDArray[Any]] = {}
        for parameter, name in call.operands:
            array = np.ascontiguousarray(self.values[name].detach().contiguous().numpy())
            operands[parameter] = array.reshape(-1).view(np.uint8)
        downstream = self._downstream({name for _, name in call.outputs}, set(call.nodes))
        blank = Cell("", self.spec.id, cell.OK, "", False, False, 0, (), "", None, None, None)
        return _Baseline(call, scalars, operands, {}, {}, downstream, {}, 0, blank)

    def _open(self, baseline: _Baseline) -> _Baseline:
        """Give a call its buffers, if it has none; those used longest ago give way.

        A network has more calls than the device has windows.
        """
        call, device = baseline.call, self.bench.device
        if device is None:
            raise RuntimeError("this bench was made without a device")
        if call.id in self._opened:
            self._opened.move_to_end(call.id)
            return baseline
        needed = len(call.operands) + len(call.outputs)
        while self._opened and needed + self._windows() > OPEN_WINDOWS:
            self._shut()
        self._opened[call.id] = baseline
        for parameter, array in baseline.operands.items():
            buffer = device.buffer(parameter, array.nbytes, role="operand")
            buffer.array[:] = array
            baseline.buffers[parameter] = buffer
        for parameter, name in call.outputs:
            value = self.values[name]
            buffer = device.buffer(parameter, value.numel() * value.element_size(), role="output")
            dtype = meta(self.traced.nodes[name]).dtype
            view = buffer.array.view(np.dtype(dtype)).reshape(tuple(value.shape))
            baseline.outputs[parameter] = (name, value, view)
            baseline.buffers[parameter] = buffer
        return baseline

    def _windows(self) -> int:
        return sum(len(baseline.buffers) for baseline in self._opened.values())

    def _shut(self) -> None:
        """Give back the buffers of the call that was used longest ago."""
        _, baseline = self._opened.popitem(last=False)
        for buffer in baseline.buffers.values():
            buffer.release()
        baseline.buffers.clear()
        baseline.outputs.clear()

    def _downstream(self, changed: set[str], replaced: set[str]) -> tuple[str, ...]:
        order: list[str] = []
        for name, node in self.traced.nodes.items():
            if name in replaced or node.op != "call_function":
                continue
            if any(source.name in changed for source in node.all_input_nodes):
                changed.add(name)
                order.append(name)
        return tuple(order)

    def _launch(
        self, candidate: Candidate, baseline: _Baseline, fuel: int, order: str
    ) -> RunResult:
        assert self.bench.device is not None
        try:
            plan = self.bench.launcher(candidate.id, candidate.source).plan(baseline.scalars)
        except LaunchError as error:
            return RunResult(error.outcome, str(error), (), 0, ())
        for _, _, view in baseline.outputs.values():
            oracle.poison(view)
        for step in plan.steps:
            if isinstance(step, Launch) and step.kernel not in candidate.image.kernels:
                return RunResult(cell.INFRASTRUCTURE, f"no kernel {step.kernel}", (), 0, ())
        result = self.bench.device.run(
            candidate.image, plan, baseline.buffers, fuel=fuel, order=order
        )
        for parameter in result.written_inputs:
            if parameter in baseline.operands:
                baseline.buffers[parameter].array[:] = baseline.operands[parameter]
        return result

    def _spliced(self, candidate: Candidate, baseline: _Baseline, order: str) -> Cell:
        result = self._launch(candidate, baseline, baseline.fuel, order)
        if result.outcome != cell.OK:
            return Cell(
                candidate=candidate.id,
                input=self.spec.id,
                outcome=result.outcome,
                detail=result.detail,
                infected=True,
                propagated=True,
                unwritten=0,
                findings=result.findings,
                output_digest="",
                seen=None,
                poisoned=None,
                exact=None,
            )
        same = all(a.tobytes() == baseline.raw[p] for p, (_, _, a) in baseline.outputs.items())
        if same:
            known = baseline.cell
            return replace(
                known,
                candidate=candidate.id,
                infected=False,
                propagated=False,
                findings=result.findings,
            )
        return self._finish(candidate, baseline, result, infected=True)

    def _finish(
        self, candidate: Candidate, baseline: _Baseline, result: RunResult, *, infected: bool
    ) -> Cell:
        marks = {p: oracle.unwritten(a) for p, (_, _, a) in baseline.outputs.items()}
        count = sum(int(np.count_nonzero(mark)) for mark in marks.values())
        outputs = self._final(baseline, marks if count else None)
        seen, exact = self._grade(outputs)
        poisoned = seen
        if count:
            poisoned, exact = self._grade(self._final(baseline, None))
        output_digest = _digest(outputs)
        return Cell(
            candidate=candidate.id,
            input=self.spec.id,
            outcome=cell.OK,
            detail="",
            infected=infected,
            propagated=output_digest != baseline.cell.output_digest,
            unwritten=count,
            findings=result.findings,
            output_digest=output_digest,
            seen=seen,
            poisoned=poisoned,
            exact=exact,
        )

    def _final(
        self, baseline: _Baseline, zero: Mapping[str, NDArray[np.bool_]] | None
    ) -> list[NDArray[Any]]:
        """The problem's outputs with the call's outputs as they stand in its buffers."""
        changed: dict[str, torch.Tensor] = {}
        for parameter, (name, original, view) in baseline.outputs.items():
            array = view.copy()
            if zero is not None:
                array.reshape(-1)[zero[parameter]] = 0
            value = torch.from_numpy(array)
            if not original.is_contiguous():
                value = torch.empty_strided(
                    original.shape, original.stride(), dtype=original.dtype
                ).copy_(value)
            changed[name] = value
        with torch.no_grad():
            for name in baseline.downstream:
                values = ChainMap(changed, self.values)
                changed[name] = evaluate(self.traced.nodes[name], values)
        finals = (changed.get(n, self.values[n]) for n in self.traced.outputs)
        return [np.ascontiguousarray(f.detach().numpy()) for f in finals]


def _magnitude(value: torch.Tensor) -> float:
    finite = value[torch.isfinite(value)]
    return float(finite.abs().max()) if finite.numel() and finite.dtype != torch.bool else 0.0


def _far_off(reference: NDArray[Any]) -> NDArray[Any]:
    if reference.dtype.kind == "b":
        return ~reference
    return np.asarray(reference + (2 + 2 * np.abs(reference)), dtype=reference.dtype)


def _digest(outputs: Sequence[NDArray[Any]]) -> str:
    state = hashlib.blake2b(digest_size=12)
    for array in outputs:
        state.update(str((array.dtype.str, array.shape)).encode())
        state.update(array.tobytes())
    return state.hexdigest()


def order_finding(forward: Cell, other: Cell, order: str) -> Finding | None:
    """The finding that thread order changes the output, if it does."""
    if forward.outcome == other.outcome and forward.output_digest == other.output_digest:
        return None
    return Finding("order-dependent", 1, f"forward and {order} thread order differ")
