"""One problem on one input, ready to run candidates by splicing.

The traced graph runs once in PyTorch and every value is kept. A candidate replaces one call: its
kernel runs on the kept operands, and only if its output differs in bits from the correct
kernel's are the nodes downstream computed again. That is exact, and tells infection from
propagation. What is the same on every device is here; ``cpu/bench.py`` and ``cuda/bench.py`` hold
what each does with memory and launches.

This module executes problem code, so it is used inside worker processes only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from kernelassay import cell, oracle
from kernelassay.cell import Cell
from kernelassay.compile.launcher import Launcher, LaunchError, parse_launcher
from kernelassay.dataless import Loader, draw_layout, trace_layout
from kernelassay.errors import KernelassayError, ProblemError, UnsupportedError
from kernelassay.execute.outputs import far_off, in_layout_of, nan_like, without, without_output
from kernelassay.execute.toolbox import AnyImage
from kernelassay.inputs import GENERATED, GIVEN, PROTOCOL, InputSpec, in_layout, materialise
from kernelassay.kernel import Call, Launch, LaunchPlan, RunResult, Scalar
from kernelassay.oracle import Verdict
from kernelassay.problem import MODEL_SEED, LoadedProblem, Problem, load
from kernelassay.substrate.lowering import MAX_BLOCKS, bind, lower, lower_fused
from kernelassay.timing import UnitWork
from kernelassay.trace import Traced, evaluate, meta
from kernelassay.user.whole import trace_whole, whole_call
from kernelassay.work import unit_work

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
    image: AnyImage

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
    unguarded: bool = False
    """Whether candidates run on it although the reference is not finite."""

    @property
    def runs(self) -> bool:
        """Whether candidates run on it."""
        return self.finite or self.unguarded


@dataclass(frozen=True, slots=True)
class _Baseline:
    """The correct run of a call in one style: what it wrote, and how long others may take."""

    written: object
    limit: float
    cell: Cell
    tolerated: frozenset[str] = frozenset()


class ProblemBench:
    """A loaded problem: its calls at the official shapes, and its inputs on demand.

    ``max_blocks`` is the launch scalar of that name at the problem's own sizes; moved sizes are
    small, so there it is :data:`MAX_BLOCKS`.
    """

    def __init__(self, problem: Problem, max_blocks: int = MAX_BLOCKS) -> None:
        self.problem = problem
        self.max_blocks = max_blocks
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
            if self.problem.kernel is None:
                self._traced[key] = trace_layout(self._loader(overrides), inputs)
            else:  # a whole forward is run, not exported
                self._traced[key] = trace_whole(loaded.build_model(MODEL_SEED), tuple(inputs))
        return self._traced[key]

    def prepare_trace(self, spec: InputSpec) -> bool:
        """Trace the problem for an input; whether that was not done before."""
        known = len(self._traced)
        self.traced_for(spec)
        return len(self._traced) > known

    def traced_for(self, spec: InputSpec) -> Traced:
        """The graph of an input, made without its data."""
        loaded = self.loaded(spec.overrides)
        if self.problem.kernel is not None or spec.transform.startswith(GIVEN):
            inputs, _ = materialise(loaded, spec)
        else:
            inputs = in_layout(draw_layout(self._loader(spec.overrides)), spec)
        return self.trace(spec.overrides, loaded, inputs)

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
        return self.arguments_in(overrides, self._at(overrides))

    def arguments_in(
        self, overrides: tuple[tuple[str, int], ...], traced: Traced
    ) -> dict[str, Mapping[str, Scalar]]:
        """The scalar arguments of each call in a graph, by its id; none where one has no value."""
        try:
            return {call.id: self.bind(call, overrides, traced) for call in self.calls}
        except KernelassayError:  # it is raised again, and recorded, when the call is to run
            return {}

    def bind(
        self, call: Call, overrides: tuple[tuple[str, int], ...], traced: Traced
    ) -> dict[str, Scalar]:
        """The scalar arguments of one call; raises as ``lowering.bind``."""
        scalars = dict(bind(call, traced))
        if "max_blocks" in scalars and not overrides:
            scalars["max_blocks"] = self.max_blocks
        return scalars

    def _at(self, overrides: tuple[tuple[str, int], ...]) -> Traced:
        loaded = self.loaded(overrides)
        if self.problem.kernel is None:
            return self.trace(overrides, loaded, draw_layout(self._loader(overrides)))
        return self.trace(overrides, loaded, loaded.draw(MODEL_SEED))

    def _loader(self, overrides: tuple[tuple[str, int], ...]) -> Loader:
        return partial(load, self.problem, dict(overrides))

    def launcher(self, candidate_id: str, source: str) -> Launcher:
        """The parsed ``launch`` function of a candidate (cached across inputs)."""
        if candidate_id not in self._launchers:
            self._launchers[candidate_id] = parse_launcher(source)
        return self._launchers[candidate_id]


B = TypeVar("B")
Written = Mapping[str, tuple[str, Tensor]]


class InputBench(ABC, Generic[B]):
    """One input of a problem: references, kept values, and the correct run of each call.

    ``B`` is what a call is bound to on a device: its arguments and buffers. ``kernel_seconds`` has
    the run time of each original that has run, by its id, ``seconds`` that of the last run.
    """

    def __init__(self, bench: ProblemBench, spec: InputSpec) -> None:
        self.bench = bench
        self.spec = spec
        loaded = bench.loaded(spec.overrides)
        self.inputs, state = self._draw(loaded)
        self.digest = self._input_digest()
        with torch.no_grad():
            self.reference = self._reference(loaded, state, torch.float32)
            self.exact = self._reference(loaded, state, torch.float64)
            self.traced = bench.trace(spec.overrides, loaded, self.inputs)
            if self.traced.signature() != bench.traced.signature():
                raise UnsupportedError(
                    "the traced graph has another structure at these sizes",
                    where=f"{bench.problem.id} {spec.id}",
                )
            self.values = self.traced.run(state, self.inputs, spec.seed)
        self._originals: dict[tuple[str, str], Candidate] = {}
        self._baselines: dict[tuple[str, str], _Baseline] = {}
        self.kernel_seconds: dict[str, float] = {}
        self.seconds = 0.0

    def facts(self) -> InputFacts:
        """The reference-only facts of this input."""
        _, verdict = self._grade(self.reference)
        finite = verdict.out_nan + verdict.out_inf + verdict.ref_nan + verdict.ref_inf == 0
        return InputFacts(
            id=self.spec.id,
            digest=self.digest,
            shapes=tuple(tuple(x.shape) for x in self.inputs if isinstance(x, Tensor)),
            output_shape=tuple(self.reference[0].shape),
            finite=finite,
            reference_error=verdict.critical_tolerance,
            magnitude=max((self._magnitude(value) for value in self.values.values()), default=0.0),
            problem="" if finite else "the reference is not finite",
            output_dtypes=tuple(meta(self.traced.nodes[n]).dtype for n in self.traced.outputs),
            arguments=self.bench.arguments_in(self.spec.overrides, self.traced),
            work=unit_work(self.bench.calls, self.traced),
            unguarded=self.spec.group in (GENERATED, PROTOCOL),
        )

    def adopt(self, originals: Mapping[str, Candidate]) -> None:
        """Name the correct kernels, one per call and mutated style; they run when needed."""
        self._originals |= {(o.call, o.style): o for o in originals.values()}

    def prepare(self, originals: Mapping[str, Candidate]) -> dict[str, Cell]:
        """Run the correct kernels; returns their cells by id."""
        self.adopt(originals)
        return {name: self._baseline(o.call, o.style).cell for name, o in originals.items()}

    def run(self, candidate: Candidate, order: str | None = None) -> Cell:
        """Run one candidate, in the input's thread order unless told otherwise.

        :meth:`prepare` or :meth:`adopt` must have run before.
        """
        baseline = self._baseline(candidate.call, candidate.style)
        bound = self._bind(candidate.call)
        return self._spliced(candidate, bound, baseline, order or self.spec.order)

    def attempt(self, candidate: Candidate, order: str) -> tuple[RunResult, int, list[Tensor]]:
        """Run a candidate in a thread order: the result, the elements not written, the outputs.

        What is not written is NaN in the outputs. There are none if the run did not end.
        """
        bound = self._bind(candidate.call)
        result = self._launch(candidate, bound, None, order)
        if result.outcome != cell.OK:
            return result, 0, []
        return result, self._unwritten(bound), self._final(bound, zeroed=False)

    def controls(self) -> Iterator[Cell]:
        """The pseudo-candidates with a known verdict."""
        shape, dtype = self.reference[0].shape, self.reference[0].dtype
        yield self._control("zeros", [torch.zeros_like(r) for r in self.reference])
        if dtype.is_floating_point:
            yield self._control("nan", [nan_like(r) for r in self.reference])
        yield self._control("forced-failure", [far_off(r) for r in self.reference])
        for position, value in enumerate(self.inputs):
            if isinstance(value, Tensor) and value.shape == shape:
                copied = value.to(dtype).contiguous()
                yield self._control(f"copy-input-{position}", [copied, *self.reference[1:]])

    def close(self) -> None:
        """Give the buffers back."""
        self._baselines.clear()

    # ---- what a device does in its own way -----------------------------------------------------

    @abstractmethod
    def _draw(self, loaded: LoadedProblem) -> tuple[list[Any], dict[str, Tensor]]:
        """The inputs and the state of the model."""

    @abstractmethod
    def _input_digest(self) -> str:
        """The digest of the inputs' bytes."""

    @abstractmethod
    def _reference(
        self, loaded: LoadedProblem, state: Mapping[str, Tensor], dtype: torch.dtype
    ) -> list[Tensor]:
        """The outputs of the module's own forward in ``dtype``, contiguous."""

    @abstractmethod
    def _magnitude(self, value: Tensor) -> float:
        """The largest finite magnitude of a tensor's elements."""

    @abstractmethod
    def _grade(self, outputs: Sequence[Tensor]) -> tuple[Verdict, Verdict]:
        """How contiguous outputs differ from the float32 and from the float64 reference."""

    @abstractmethod
    def _output_digest(self, outputs: Sequence[Tensor]) -> str:
        """A digest of outputs' dtypes, shapes and bytes."""

    @abstractmethod
    def _bind(self, call_id: str) -> B:
        """The call with its arguments and buffers."""

    @abstractmethod
    def _scalars(self, bound: B) -> Mapping[str, Scalar]:
        """The scalar arguments of a bound call."""

    @abstractmethod
    def _execute(
        self, candidate: Candidate, bound: B, plan: LaunchPlan, limit: float | None, order: str
    ) -> RunResult:
        """Run a plan on buffers that hold what they begin with; ``limit`` bounds its time."""

    @abstractmethod
    def _limit(self, result: RunResult) -> float:
        """How long a candidate may take where the correct kernel gave ``result``."""

    @abstractmethod
    def _written(self, bound: B) -> object:
        """The bits of the outputs as they stand, to be compared."""

    @abstractmethod
    def _unwritten(self, bound: B) -> int:
        """The number of elements of the outputs that no thread wrote."""

    @abstractmethod
    def _outputs(self, bound: B, *, zeroed: bool) -> Written:
        """By parameter: the node's name and its value as it stands, unwritten elements as zero."""

    @abstractmethod
    def _downstream(self, bound: B) -> Sequence[str]:
        """The nodes to compute again when the outputs differ."""

    def _tolerated(self, original: Candidate, bound: B, result: RunResult) -> frozenset[str]:
        """Kinds of findings of a correct kernel that are not held against its mutants."""
        return frozenset()

    # ---- the flow ------------------------------------------------------------------------------

    def _control(self, name: str, outputs: Sequence[Tensor]) -> Cell:
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
            output_digest=self._output_digest(outputs),
            seen=seen,
            poisoned=seen,
            exact=exact,
        )

    def _baseline(self, call: str, style: str) -> _Baseline:
        if (call, style) not in self._baselines:
            original = self._originals[call, style]
            bound = self._bind(call)
            result = self._launch(original, bound, None, self.spec.order)
            self.kernel_seconds[original.id] = self.seconds
            if result.outcome != cell.OK:
                raise self._no_baseline(original, result)
            tolerated = self._tolerated(original, bound, result)
            result = without(result, tolerated)
            self._baselines[call, style] = _Baseline(
                written=self._written(bound),
                limit=self._limit(result),
                cell=self._finish(original, bound, result, correct=None),
                tolerated=tolerated,
            )
        return self._baselines[call, style]

    def _no_baseline(self, original: Candidate, result: RunResult) -> KernelassayError:
        """A correct kernel did not end: the problem is broken, or the input asks for too much.

        The limit is our bound, not the kernel's fault; but a user's kernel may well loop for ever.
        """
        ours = self.bench.problem.kernel is None and self.spec.group != "official"
        kind = UnsupportedError if ours and result.outcome == cell.TIMEOUT else ProblemError
        return kind(
            f"the correct kernel {original.id} ended with {result.outcome}: {result.detail}",
            where=f"{self.bench.problem.id} {self.spec.id}",
        )

    def _launch(self, candidate: Candidate, bound: B, limit: float | None, order: str) -> RunResult:
        try:
            launcher = self.bench.launcher(candidate.id, candidate.source)
            plan = launcher.plan(self._scalars(bound))
        except LaunchError as error:
            return RunResult(error.outcome, str(error), (), 0, ())
        for step in plan.steps:
            if isinstance(step, Launch) and step.kernel not in candidate.image.kernels:
                return RunResult(cell.INFRASTRUCTURE, f"no kernel {step.kernel}", (), 0, ())
        return self._execute(candidate, bound, plan, limit, order)

    def _spliced(self, candidate: Candidate, bound: B, baseline: _Baseline, order: str) -> Cell:
        result = self._launch(candidate, bound, baseline.limit, order)
        result = without(result, baseline.tolerated)
        if result.outcome != cell.OK:
            return without_output(
                candidate.id, self.spec.id, result.outcome, result.detail, result.findings
            )
        if self._written(bound) == baseline.written:
            return replace(
                baseline.cell,
                candidate=candidate.id,
                infected=False,
                propagated=False,
                findings=result.findings,
            )
        return self._finish(candidate, bound, result, correct=baseline.cell)

    def _finish(
        self, candidate: Candidate, bound: B, result: RunResult, *, correct: Cell | None
    ) -> Cell:
        """The cell of outputs that differ from the ``correct`` kernel's, or are the first."""
        count = self._unwritten(bound)
        outputs = self._final(bound, zeroed=count > 0)
        seen, exact = self._grade(outputs)
        digested = self._output_digest(outputs)
        poisoned = seen
        if count:
            outputs = self._final(bound, zeroed=False)
            poisoned, exact = self._grade(outputs)
        detail = ""
        if candidate.role == ORIGINAL and self.bench.problem.kernel is not None:
            arrays = [value.cpu().numpy() for value in outputs]
            detail = oracle.first_wrong(arrays, [e.cpu().numpy() for e in self.exact], count)
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

    def _final(self, bound: B, *, zeroed: bool) -> list[Tensor]:
        """The problem's outputs with the call's outputs as they stand in its buffers."""
        changed: dict[str, Tensor] = {}
        for name, value in self._outputs(bound, zeroed=zeroed).values():
            changed[name] = in_layout_of(self.values[name], value)
        with torch.no_grad():
            for name in self._downstream(bound):
                values = ChainMap(changed, self.values)
                node = self.traced.nodes[name]
                changed[name] = evaluate(node, values, self.reference[0].device)
        finals = (changed.get(n, self.values[n]) for n in self.traced.outputs)
        return [f.detach().contiguous() for f in finals]
