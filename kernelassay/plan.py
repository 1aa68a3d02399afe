"""Planning one problem: which mutants, which inputs, and whether its substrate may be used.

The result is a plain record (see :func:`make_plan`) that is stored as JSON and from which the
measurement can be repeated without planning again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelassay import gate, population
from kernelassay.cell import Cell
from kernelassay.errors import KernelassayError
from kernelassay.execute.bench import ORIGINAL, Candidate
from kernelassay.execute.worker import CallInfo, UnitResult, Worker
from kernelassay.inputs import FULL, QUICK, InputSpec
from kernelassay.mutation import Rule
from kernelassay.population import Toolbox
from kernelassay.problem import Problem


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan depends on besides the problem."""

    rules: tuple[Rule, ...]
    quick: bool
    backend: str
    max_inputs: int | None = None


@dataclass(frozen=True, slots=True)
class GateOptions:
    """What the gate runs: a battery, its first ``max_inputs`` inputs, and benign rewrites or not.

    Without ``rewrites`` the benign variants are the other styles alone.
    """

    battery: str = FULL
    max_inputs: int | None = None
    rewrites: bool = True


Progress = Callable[[str], None]
Runner = Callable[..., Any]


def run_here(function: Callable[..., Any], *arguments: Any) -> Any:
    """The runner that needs no process: calls the function."""
    return function(*arguments)


def make_plan(
    problem: Problem,
    worker: Worker,
    tools: Toolbox,
    options: PlanOptions,
    *,
    run: Runner = run_here,
    progress: Progress = lambda step: None,
) -> dict[str, Any]:
    """Trace, lower, mutate, classify, gate and admit one problem.

    A problem that cannot be used yields a plan with ``refused`` set and no mutants; it is never
    dropped.
    """
    size = QUICK if options.quick else FULL
    gating = GateOptions(size, options.max_inputs)
    base, calls = admit(problem, worker, tools, gating, run=run, progress=progress)
    if base["refused"]:
        return base
    try:
        progress("mutating and compiling")
        base["mutants"] = run(
            population.mutant_records,
            problem.id,
            calls,
            tools,
            tuple(rule.id for rule in options.rules),
            options.backend,
        )
    except KernelassayError as error:
        base["refused"] = str(error)
    return base


def admit(
    problem: Problem,
    worker: Worker,
    tools: Toolbox,
    options: GateOptions,
    *,
    run: Runner = run_here,
    progress: Progress = lambda step: None,
) -> tuple[dict[str, Any], tuple[CallInfo, ...]]:
    """Trace, lower, gate and admit one problem: its plan without mutants, and its calls."""
    base = refused_plan(problem, "")
    calls: tuple[CallInfo, ...] = ()
    try:
        progress("tracing")
        calls = worker.open(problem)
        base["calls"] = [_call_record(call) for call in calls]
        progress("compiling the correct kernels")
        correct = run(population.correct_kernels, problem.id, calls, tools, options.rewrites)
        base["benign"] = correct.records()
        progress("checking inputs")
        _gate(base, worker, correct.originals, correct.benign, options)
    except KernelassayError as error:
        base["refused"] = str(error)
    return base, calls


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
    return {
        "id": problem.id,
        "level": problem.level,
        "origin": problem.origin,
        "path": problem.path,
        "digest": problem.digest,
        "official_shape": problem.official_shape,
        "shrunk": [list(pair) for pair in problem.shrunk],
    }


def spec_of(record: Mapping[str, Any]) -> InputSpec:
    """The input spec of a stored input record."""
    return InputSpec.from_json(record["spec"])


def _call_record(call: CallInfo) -> dict[str, Any]:
    return {
        "id": call.id,
        "template": call.template,
        "style": population.mutated_style(call),
        "nodes": list(call.nodes),
        "ops": list(call.ops),
        "sources": dict(call.sources),
    }


def _gate(
    base: dict[str, Any],
    worker: Worker,
    originals: Mapping[str, Candidate],
    benign: Sequence[Candidate],
    options: GateOptions,
) -> None:
    """Measure references, originals and benign variants on every input; admit or refuse."""
    specs = worker.battery(options.battery)
    if options.max_inputs is not None:
        specs = specs[: options.max_inputs]
    for spec in specs:
        unit = worker.measure(spec, originals, benign)
        record = _input_record(spec, unit)
        base["inputs"].append(record)
        if unit.broken:
            base["refused"] = f"not admitted on input {spec.id}: {unit.rejected}"
            return
        if not unit.rejected and unit.facts is not None:
            refusal = gate.refusal(
                _correct(unit),
                official=spec.group == "official",
                magnitude=unit.facts.magnitude,
                reference_error=unit.facts.reference_error,
            )
            if refusal:
                base["refused"] = f"not admitted on input {spec.id}: {refusal}"
                return
    unfit = [r for r in base["inputs"] if r["group"] == "official" and not r["valid"]]
    if unfit:
        base["refused"] = f"the official input {unfit[0]['id']} is not valid: {unfit[0]['reason']}"


def _input_record(spec: InputSpec, unit: UnitResult) -> dict[str, Any]:
    facts = unit.facts
    record: dict[str, Any] = {
        "id": spec.id,
        "group": spec.group,
        "spec": spec.to_json(),
        "digest": facts.digest if facts else "",
        "shapes": [list(s) for s in facts.shapes] if facts else [],
        "reference_error": facts.reference_error if facts and facts.finite else None,
        "benign_worst": None,
        "valid": False,
        "reason": unit.rejected,
    }
    if facts is not None and not unit.rejected:
        worst = gate.worst_error(_correct(unit))
        record["benign_worst"] = worst if math.isfinite(worst) else None
        record["reason"] = gate.objection(facts.reference_error, worst)
        record["valid"] = not record["reason"]
    return record


def _correct(unit: UnitResult) -> list[Cell]:
    """The cells of kernels that are correct by construction."""
    return [c for c in unit.fixed if c.candidate.startswith(ORIGINAL)] + unit.cells
