"""One problem on one input, ready to run candidates by splicing.

The traced graph runs once in PyTorch and every value is kept. A candidate replaces one call: its
kernel runs on the kept operands, and only if its output differs in bits from the correct
kernel's are the nodes downstream computed again. That is exact, and tells infection from
propagation.

This module executes problem code, so it is used inside worker processes only.
"""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernelassay import cell, oracle
from kernelassay.cell import Cell
from kernelassay.compile.launcher import Launcher, LaunchError, parse_launcher
from kernelassay.errors import KernelassayError, ProblemError, UnsupportedError
from kernelassay.execute.bound import Bound, BoundCalls
from kernelassay.execute.cpu.build import Image
from kernelassay.execute.cpu.device import CpuDevice
from kernelassay.execute.outputs import far_off, magnitude, other_order, output_digest, without
from kernelassay.inputs import InputSpec, digest, materialise
from kernelassay.kernel import Call, Launch, RunResult, Scalar
from kernelassay.oracle import Verdict
from kernelassay.problem import MODEL_SEED, LoadedProblem, Problem, load
from kernelassay.references import run_model
from kernelassay.substrate.lowering import bind, lower, lower_fused
from kernelassay.timing import UnitWork
from kernelassay.trace import Traced, evaluate, meta, trace
from kernelassay.user.whole import trace_whole, whole_call
from kernelassay.work import unit_work

ORIGINAL_FUEL = 200_000_000
FUEL_FACTOR = 20
FUEL_FLOOR = 10_000

ORIGINAL = "original"
BENIGN = "benign"
MUTANT = "mutant"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel that stands in for one call: ``source`` gives the launches, ``image`` the code.

    ``style`` is that of the original it is compared with: its own, or the call's leading one.
    """

    id: str
    role: str
    call: str
    style: str
    source: str
    image: Image

    @property
    def original(self) -> str:
        """The id of the original that it is compared with."""
        return f"{ORIGINAL}/{self.call}/{self.style}"


@dataclass(frozen=True, slots=True)
class InputFacts:
    """What the validity gate needs to know of one input, measured on the references alone.

    ``reference_error`` is the critical tolerance between the float32 and float64 references,
    ``magnitude`` the largest finite magnitude among the values of the traced graph, ``arguments``
    the scalars of each call, by its id; ``work`` what the unit computes and moves.
    """

    id: str
    digest: str
    shapes: tuple[tuple[int, ...], ...]
    output_shape: tuple[int, ...]
    finite: bool
    reference_error: float
    magnitude: float
    problem: str
    output_dtypes: tuple[str, ...] = ("float32",)
    arguments: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    work: UnitWork | None = None


@dataclass(frozen=True, slots=True)
class _Baseline:
    """The correct run of a call in one style on this input."""

    raw: dict[str, bytes]
    fuel: int
    cell: Cell
    tolerated: frozenset[str] = frozenset()


class ProblemBench:
    """A loaded problem: its calls at the official shapes, and its inputs on demand."""

    def __init__(self, problem: Problem, device: CpuDevice | None) -> None:
        self.problem = problem
        self.device = device
        self._loaded: dict[tuple[tuple[str, int], ...], LoadedProblem] = {}
        self._traced: dict[Any, Traced] = {}
        self._launchers: dict[str, Launcher] = {}
        self.traced = self._at(())
        self.calls: tuple[Call, ...] = self.lower(self.traced)
        if not self.calls:
            raise UnsupportedError(
                "the module computes nothing: its outputs are inputs, parameters or views of them",
                where=problem.id,
                hint="there is no kernel to mutate",
            )

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
            tracer = trace if self.problem.kernel is None else trace_whole
            self._traced[key] = tracer(loaded.build_model(MODEL_SEED), tuple(inputs))
        return self._traced[key]

    def lower(self, traced: Traced) -> tuple[Call, ...]:
        """The calls that cover a graph, and the fused ones; or the one of a user's kernel."""
        kernel = self.problem.kernel
        if kernel is not None:
            return (whole_call(kernel, traced),)
        return (*lower(traced), *lower_fused(traced))

    def signature(self, overrides: tuple[tuple[str, int], ...]) -> str:
        """The signature of the graph at some sizes."""
        return self._at(overrides).signature()

    def arguments(self, overrides: tuple[tuple[str, int], ...]) -> dict[str, Mapping[str, Scalar]]:
        """The scalar arguments of each call at some sizes, by its id."""
        return _arguments(self.calls, self._at(overrides))

    def _at(self, overrides: tuple[tuple[str, int], ...]) -> Traced:
        loaded = self.loaded(overrides)
        return self.trace(overrides, loaded, loaded.draw(MODEL_SEED))

    def launcher(self, candidate_id: str, source: str) -> Launcher:
        """The parsed ``launch`` function of a candidate (cached across inputs)."""
        if candidate_id not in self._launchers:
            self._launchers[candidate_id] = parse_launcher(source)
        return self._launchers[candidate_id]


def _arguments(calls: Sequence[Call], traced: Traced) -> dict[str, Mapping[str, Scalar]]:
    try:
        return {call.id: dict(bind(call, traced)) for call in calls}
    except KernelassayError:  # it is raised again, and recorded, when the call is to run
        return {}


class InputBench:
    """One input of a problem: references, kept values, and the correct run of each call.

    ``kernel_seconds`` has the run time of each original that was prepared, by its id.
    """

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
        self._calls = BoundCalls(
            bench.device, {c.id: c for c in bench.calls}, self.traced, self.values
        )
        self._baselines: dict[tuple[str, str], _Baseline] = {}
        self.kernel_seconds: dict[str, float] = {}
        self._run_seconds = 0.0

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
            magnitude=max((magnitude(value) for value in self.values.values()), default=0.0),
            problem="" if finite else "the reference is not finite",
            output_dtypes=tuple(meta(self.traced.nodes[n]).dtype for n in self.traced.outputs),
            arguments=_arguments(self.bench.calls, self.traced),
            work=unit_work(self.bench.calls, self.traced),
        )

    def prepare(self, originals: Mapping[str, Candidate]) -> dict[str, Cell]:
        """Run the correct kernels, one per call and mutated style; returns their cells by id."""
        return {name: self._baseline(original).cell for name, original in originals.items()}

    def run(self, candidate: Candidate, order: str | None = None) -> Cell:
        """Run one candidate, in the input's thread order unless told otherwise.

        :meth:`prepare` must have run before.
        """
        baseline = self._baselines[candidate.call, candidate.style]
        bound = self._calls.bind(candidate.call)
        return self._spliced(candidate, bound, baseline, order or self.spec.order)

    def controls(self) -> Iterator[Cell]:
        """The pseudo-candidates with a known verdict."""
        shape = self.reference[0].shape
        yield self._control("zeros", [np.zeros_like(r) for r in self.reference])
        if self.reference[0].dtype.kind == "f":
            yield self._control("nan", [np.full_like(r, np.nan) for r in self.reference])
        yield self._control("forced-failure", [far_off(r) for r in self.reference])
        for position, value in enumerate(self.inputs):
            if isinstance(value, torch.Tensor) and value.shape == shape:
                copied = value.numpy().astype(self.reference[0].dtype)
                yield self._control(f"copy-input-{position}", [copied, *self.reference[1:]])

    def close(self) -> None:
        """Give the buffers back."""
        self._calls.close()
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
            output_digest=output_digest(outputs),
            seen=seen,
            poisoned=seen,
            exact=exact,
        )

    def _grade(self, outputs: Sequence[NDArray[Any]]) -> tuple[Verdict, Verdict]:
        seen = [oracle.grade(o, r) for o, r in zip(outputs, self.reference, strict=True)]
        exact = [oracle.grade(o, r) for o, r in zip(outputs, self.exact, strict=True)]
        return oracle.merge(seen), oracle.merge(exact)

    def _baseline(self, original: Candidate) -> _Baseline:
        key = (original.call, original.style)
        if key not in self._baselines:
            bound = self._calls.bind(original.call)
            result = self._launch(original, bound, ORIGINAL_FUEL, self.spec.order)
            self.kernel_seconds[original.id] = self._run_seconds
            if result.outcome != cell.OK:
                raise self._no_baseline(original, result)
            tolerated: frozenset[str] = frozenset()
            if self.bench.problem.kernel is not None:
                tolerated = self._races_without_effect(original, bound, result)
                result = without(result, tolerated)
            self._baselines[key] = _Baseline(
                raw={p: a.tobytes() for p, (_, _, a) in bound.outputs.items()},
                fuel=max(FUEL_FLOOR, FUEL_FACTOR * result.fuel),
                cell=self._finish(original, bound, result, correct=None),
                tolerated=tolerated,
            )
        return self._baselines[key]

    def _no_baseline(self, original: Candidate, result: RunResult) -> KernelassayError:
        """A correct kernel did not end: the problem is broken, or the input asks for too much.

        Fuel is our bound, not the kernel's fault; but a user's kernel may well loop for ever.
        """
        ours = self.bench.problem.kernel is None and self.spec.group != "official"
        kind = UnsupportedError if ours and result.outcome == cell.TIMEOUT else ProblemError
        return kind(
            f"the correct kernel {original.id} ended with {result.outcome}: {result.detail}",
            where=f"{self.bench.problem.id} {self.spec.id}",
        )

    def _races_without_effect(
        self, original: Candidate, bound: Bound, result: RunResult
    ) -> frozenset[str]:
        """Races of a user's own kernel that do not decide its output, left out of all findings.

        Real kernels let the lanes of a warp store one value to one place. Such a kernel is usable
        if its output is the same in another thread order; its mutants are then not flagged for
        what it does itself.
        """
        races = frozenset(f.kind for f in result.findings if f.kind.startswith("race-"))
        if not races:
            return races
        outputs = [a.copy() for _, _, a in bound.outputs.values()]
        self._launch(original, bound, ORIGINAL_FUEL, other_order(self.spec.order))
        reverse = [a for _, _, a in bound.outputs.values()]
        same = all(a.tobytes() == b.tobytes() for a, b in zip(outputs, reverse, strict=True))
        for kept, (_, _, view) in zip(outputs, bound.outputs.values(), strict=True):
            view[...] = kept
        return races if same else frozenset()

    def _launch(self, candidate: Candidate, bound: Bound, fuel: int, order: str) -> RunResult:
        assert self.bench.device is not None
        try:
            plan = self.bench.launcher(candidate.id, candidate.source).plan(bound.scalars)
        except LaunchError as error:
            return RunResult(error.outcome, str(error), (), 0, ())
        for parameter, (_, _, view) in bound.outputs.items():
            oracle.poison(view)
            if parameter in bound.starts:
                view[...] = bound.starts[parameter]
        for step in plan.steps:
            if isinstance(step, Launch) and step.kernel not in candidate.image.kernels:
                return RunResult(cell.INFRASTRUCTURE, f"no kernel {step.kernel}", (), 0, ())
        self.bench.device.load(candidate.image)
        start = time.perf_counter()
        result = self.bench.device.run(
            candidate.image,
            plan,
            bound.buffers,
            fuel=fuel,
            order=order,
            surroundings=self.spec.surroundings,
        )
        self._run_seconds = time.perf_counter() - start
        for parameter in result.written_inputs:
            if parameter in bound.operands:
                bound.buffers[parameter].array[:] = bound.operands[parameter]
        return result

    def _spliced(self, candidate: Candidate, bound: Bound, baseline: _Baseline, order: str) -> Cell:
        result = self._launch(candidate, bound, baseline.fuel, order)
        result = without(result, baseline.tolerated)
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
        same = all(a.tobytes() == baseline.raw[p] for p, (_, _, a) in bound.outputs.items())
        if same:
            known = baseline.cell
            return replace(
                known,
                candidate=candidate.id,
                infected=False,
                propagated=False,
                findings=result.findings,
            )
        return self._finish(candidate, bound, result, correct=baseline.cell)

    def _finish(
        self, candidate: Candidate, bound: Bound, result: RunResult, *, correct: Cell | None
    ) -> Cell:
        """The cell of outputs that differ from the ``correct`` kernel's, or are the first."""
        marks = {p: oracle.unwritten(a) for p, (_, _, a) in bound.outputs.items()}
        count = sum(int(np.count_nonzero(mark)) for mark in marks.values())
        outputs = self._final(bound, marks if count else None)
        seen, exact = self._grade(outputs)
        poisoned = seen
        if count:
            poisoned, exact = self._grade(self._final(bound, None))
        digested = output_digest(outputs)
        detail = ""
        if candidate.role == ORIGINAL and self.bench.problem.kernel is not None:
            detail = oracle.first_wrong(self._final(bound, None), self.exact, count)
        return Cell(
            candidate=candidate.id,
            input=self.spec.id,
            outcome=cell.OK,
            detail=detail,
            infected=True,
            propagated=correct is None or digested != correct.output_digest,
            unwritten=count,
            findings=result.findings,
            output_digest=digested,
            seen=seen,
            poisoned=poisoned,
            exact=exact,
        )

    def _final(
        self, bound: Bound, zero: Mapping[str, NDArray[np.bool_]] | None
    ) -> list[NDArray[Any]]:
        """The problem's outputs with the call's outputs as they stand in its buffers."""
        changed: dict[str, torch.Tensor] = {}
        for parameter, (name, original, view) in bound.outputs.items():
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
            for name in bound.downstream:
                values = ChainMap(changed, self.values)
                changed[name] = evaluate(self.traced.nodes[name], values)
        finals = (changed.get(n, self.values[n]) for n in self.traced.outputs)
        return [np.ascontiguousarray(f.detach().numpy()) for f in finals]
