"""Planning one problem: which mutants, which inputs, and whether its substrate may be used.

The result is a plain record (see :func:`make_plan`) that is stored as JSON and from which the
measurement can be repeated without planning again.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelassay import population, styles
from kernelassay.compile.fixed import Known, Sizes, multiples, ties
from kernelassay.errors import DeviceError, KernelassayError, UnsupportedError
from kernelassay.execute.bench import MUTANT
from kernelassay.execute.messages import Arguments, CallInfo
from kernelassay.execute.worker import UnitRunner
from kernelassay.gate_inputs import Measured, gate_inputs
from kernelassay.gate_mutants import GateMutants
from kernelassay.input_shapes import Small
from kernelassay.inputs import FULL, QUICK, InputSpec
from kernelassay.lazy import LAZY, ROWS
from kernelassay.mutation import Rule
from kernelassay.population import Toolbox
from kernelassay.problem import Problem
from kernelassay.protocol_inputs import KINDS
from kernelassay.protocols import DEFAULT, Protocol
from kernelassay.small import small_sizes_limited

OWN, OFFICIAL = "own", "official"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan depends on besides the problem, and which of its ``cells`` are measured.

    ``scale`` is :data:`OWN`, all inputs at the problem's sizes or near them, or :data:`OFFICIAL`,
    what checkers draw at those sizes and the battery at small ones. ``sample`` is the most mutants
    of a problem, of all that its rules generate, ``benign`` the most benign variants; None means
    all. ``cells`` is ``lazy.ROWS`` or ``lazy.LAZY``.
    """

    rules: tuple[Rule, ...]
    quick: bool
    backend: str
    max_inputs: int | None = None
    styles: tuple[str, ...] = styles.DEFAULT
    given: tuple[InputSpec, ...] = ()
    """Inputs that somebody handed over, measured after the battery's."""
    scale: str = OWN
    sample: int | None = None
    benign: int | None = None
    cells: str = ROWS
    protocols: tuple[Protocol, ...] | None = None
    """Those that were asked for: they draw their own inputs; None draws none."""

    @property
    def decided(self) -> tuple[Protocol, ...]:
        """The protocols that lazy cells decide."""
        return DEFAULT if self.protocols is None else self.protocols

    @property
    def draws(self) -> tuple[str, ...]:
        """The kinds of inputs that protocols which were asked for draw, each once."""
        return tuple(dict.fromkeys(p.draws for p in self.protocols or () if p.draws))

    @property
    def gates_mutants(self) -> bool:
        """Whether the gate runs the mutants, too, and all in a second order on the first input.

        What is known of arguments must be known before that; of given inputs it is not.
        """
        return self.cells == LAZY and not self.given


@dataclass(frozen=True, slots=True)
class GateOptions:
    """What the gate runs: a battery, its first ``max_inputs`` inputs, and benign rewrites or not.

    Without ``rewrites`` the benign variants are the other styles alone; at most ``benign`` of them
    are built. ``scale`` and ``draws`` are as in :class:`PlanOptions`.
    """

    battery: str = FULL
    max_inputs: int | None = None
    rewrites: bool = True
    styles: tuple[str, ...] = styles.DEFAULT
    given: tuple[InputSpec, ...] = ()
    scale: str = OWN
    benign: int | None = None
    draws: tuple[str, ...] = ()


Progress = Callable[[str], None]
Runner = Callable[..., Any]
Mutated = Callable[[dict[str, Any], Sequence[CallInfo], Sequence[InputSpec]], GateMutants]
"""Puts the mutants of some calls into a plan, and gives those that run on its inputs to come."""


def run_here(function: Callable[..., Any], *arguments: Any) -> Any:
    """The runner that needs no process: calls the function."""
    return function(*arguments)


def make_plan(
    problem: Problem,
    worker: UnitRunner,
    tools: Toolbox,
    options: PlanOptions,
    *,
    run: Runner = run_here,
    progress: Progress = lambda step: None,
    measured: Measured = lambda spec, unit: None,
) -> dict[str, Any]:
    """Trace, lower, mutate, classify, gate and admit one problem.

    A problem that cannot be used yields a plan with ``refused`` set and no mutants; it is never
    dropped. Raises :class:`DeviceError`, which says nothing of the problem.
    """
    size = QUICK if options.quick else FULL
    gating = GateOptions(
        size,
        options.max_inputs,
        styles=options.styles,
        given=options.given,
        scale=options.scale,
        benign=options.benign,
        draws=options.draws,
    )

    def mutate(base: dict[str, Any], calls: Sequence[CallInfo]) -> None:
        progress("mutating and compiling")
        base["mutants"], generated = run(
            population.mutant_records,
            problem.id,
            [(c, r["styles"]) for c, r in zip(calls, base["calls"], strict=True)],
            tools,
            tuple(rule.id for rule in options.rules),
            options.backend,
            options.sample,
        )
        if options.sample is not None:
            base["generated"] = generated

    def mutated_ahead(
        base: dict[str, Any], calls: Sequence[CallInfo], specs: Sequence[InputSpec]
    ) -> GateMutants:
        mutate(base, calls)
        _, candidates = run(population.candidates_of, base, tools)
        mutants = [one for one in candidates if one.role == MUTANT]
        progress("checking inputs")
        return GateMutants(mutants, specs, options.decided)

    base, calls = admit(
        problem,
        worker,
        tools,
        gating,
        run=run,
        progress=progress,
        measured=measured,
        mutated=mutated_ahead if options.gates_mutants else None,
    )
    if base["refused"]:
        base["mutants"] = []
        base.pop("generated", None)
        return base
    try:
        if not options.gates_mutants or any(record["not_admitted"] for record in base["calls"]):
            mutate(base, calls)
    except DeviceError:
        raise
    except KernelassayError as error:
        base["refused"] = str(error)
    return base


def admit(
    problem: Problem,
    worker: UnitRunner,
    tools: Toolbox,
    options: GateOptions,
    *,
    run: Runner = run_here,
    progress: Progress = lambda step: None,
    measured: Measured = lambda spec, unit: None,
    mutated: Mutated | None = None,
) -> tuple[dict[str, Any], tuple[CallInfo, ...]]:
    """Trace, lower, gate and admit one problem: its plan without mutants, and its calls.

    With ``mutated`` the plan has mutants, and the gate runs them beside the correct kernels.
    Raises :class:`DeviceError`, which says nothing of the problem.
    """
    base = refused_plan(problem, "")
    calls: tuple[CallInfo, ...] = ()
    try:
        progress("tracing")
        calls = tuple(c for c in worker.open(problem) if _is_of_plan(c, options.styles))
        base["calls"] = [_call_record(call, options.styles) for call in calls]
        if not any(record["styles"] for record in base["calls"]):
            base["refused"] = f"no kernel has the style {' or '.join(options.styles)}"
            return base, calls
        progress("compiling the correct kernels")
        correct = _correct_kernels(problem, calls, tools, run, options)
        base["benign"] = correct.records()
        small: Small | None = None
        if options.scale == OFFICIAL:
            progress("scaling down")
            small = run(small_sizes_limited, problem)
            if small.reason:
                base["without_small_inputs"] = small.reason
        progress("checking inputs")
        found = worker.battery(options.battery, small, options.draws)
        chosen = _chosen(problem, found.specs, options)
        full_size = small is not None
        mutants = None
        if mutated is not None:
            foreseen = [arguments for _, arguments in found.tried]
            told = [with_known(call, foreseen, found.tried) for call in calls]
            mutants = mutated(base, told, chosen)
        given = gate_inputs(
            base, problem, worker, correct, chosen, measured, mutants, full_size=full_size
        )
        calls = tuple(with_known(call, given, found.tried) for call in calls)
    except DeviceError:
        raise
    except KernelassayError as error:
        base["refused"] = str(error)
    return base, calls


def _correct_kernels(
    problem: Problem,
    calls: Sequence[CallInfo],
    tools: Toolbox,
    run: Runner,
    options: GateOptions,
) -> population.CorrectKernels:
    try:
        correct: population.CorrectKernels = run(
            population.correct_kernels,
            problem.id,
            calls,
            tools,
            options.styles,
            options.rewrites,
            options.benign,
        )
    except DeviceError:
        raise
    except KernelassayError as error:
        if problem.kernel is None or not problem.kernel.note or error.hint:
            raise
        raise type(error)(error.what, where=error.where, hint=problem.kernel.note) from error
    return correct


def refused_plan(problem: Problem, reason: str) -> dict[str, Any]:
    """The plan of a problem that is not used, with the reason."""
    return {
        "problem": problem_record(problem),
        "refused": reason,
        "calls": [],
        "inputs": [],
        "mutants": [],
        "benign": [],
    }


def problem_record(problem: Problem) -> dict[str, Any]:
    """The stored facts of a problem."""
    record = {
        "id": problem.id,
        "level": problem.level,
        "origin": problem.origin,
        "path": problem.path,
        "digest": problem.digest,
        "official_shape": problem.official_shape,
        "shrunk": [list(pair) for pair in problem.shrunk],
    }
    if problem.kernel is not None:
        kernel = problem.kernel
        record["kernel"] = {"path": kernel.path, "digest": kernel.digest, "note": kernel.note}
    return record


def spec_of(record: Mapping[str, Any]) -> InputSpec:
    """The input spec of a stored input record."""
    return InputSpec.from_json(record["spec"])


def _is_of_plan(call: CallInfo, chosen: Sequence[str]) -> bool:
    """Whether a plan records a call: a fused one overlaps others, and may be left out."""
    return styles.FUSED not in call.sources or bool(styles.mutated(call.sources, chosen))


def _call_record(call: CallInfo, chosen: Sequence[str]) -> dict[str, Any]:
    mutated = styles.mutated(call.sources, chosen)
    return {
        "id": call.id,
        "template": call.template,
        "styles": list(mutated),
        "not_admitted": {},
        "nodes": list(call.nodes),
        "ops": list(call.ops),
        "sources": {style: call.sources[style] for style in mutated},
    }


def _chosen(problem: Problem, specs: Sequence[InputSpec], options: GateOptions) -> list[InputSpec]:
    """The inputs to use, of those there are. Raises ``UnsupportedError`` if no official one is."""
    chosen = list(specs)
    if options.max_inputs is not None:
        asked = {name for kind in options.draws for name in KINDS[kind].ids}
        rest = [spec for spec in specs if spec.id not in asked]
        chosen = [*rest[: options.max_inputs], *(spec for spec in specs if spec.id in asked)]
    if problem.kernel is not None:
        chosen = [spec for spec in chosen if not skipped(spec, problem.kernel.skip)]
    if not any(spec.group == "official" for spec in chosen):
        raise UnsupportedError(
            "no official input is left, and those are what a kernel is admitted on",
            where=problem.id,
            hint="drop the official inputs from the header's `// kernelassay: skip ...`",
        )
    return [*chosen, *options.given]


def with_known(
    call: CallInfo, given: Sequence[Arguments], tried: Sequence[tuple[Sizes, Arguments]]
) -> CallInfo:
    """``call`` with what its arguments tell: constants that do vary, sizes that are one size."""
    own = [arguments[call.id] for arguments in given if call.id in arguments]
    course = [(sizes, some[call.id]) for sizes, some in tried if call.id in some]
    known: dict[str, Known] = {
        name: value
        for name, value in call.fixed.items()
        if all(
            name in scalars and scalars[name] == scalars.get(str(value), value)
            for scalars in (*own, *(scalars for _, scalars in course))
        )
    }
    known |= ties(course, own, known)
    return replace(call, fixed={**known, **multiples(course, own, known)})


def skipped(spec: InputSpec, globs: Sequence[str]) -> bool:
    """By its id, or by the name of its values, which inputs of several sizes share."""
    names = (spec.id, spec.transform)
    return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)
