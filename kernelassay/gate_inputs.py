"""The gate over the inputs of a problem: each judges the correct kernels, and is judged by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from kernelassay import gate, population, styles
from kernelassay.cell import INFRASTRUCTURE, LAUNCH_FAILURE, OK, OUT_OF_MEMORY, TIMEOUT, Cell
from kernelassay.errors import DeviceError
from kernelassay.execute.bench import BENIGN, ORIGINAL
from kernelassay.execute.messages import Arguments
from kernelassay.execute.worker import UnitResult, UnitRunner
from kernelassay.gate_mutants import GateMutants
from kernelassay.inputs import PROTOCOL, InputSpec
from kernelassay.problem import Problem

# Of infrastructure is what a whole device has too little memory for: to run it, or what follows it.
_OVERTAXED = (TIMEOUT, LAUNCH_FAILURE, OUT_OF_MEMORY, INFRASTRUCTURE)

Measured = Callable[[InputSpec, UnitResult], None]
"""Is told of each input that the gate has measured."""


def gate_inputs(
    base: dict[str, Any],
    problem: Problem,
    worker: UnitRunner,
    correct: population.CorrectKernels,
    specs: Sequence[InputSpec],
    measured: Measured,
    mutants: GateMutants | None,
    *,
    full_size: bool,
) -> list[Arguments]:
    """Measure references, originals and benign variants on every input; admit or refuse.

    With ``mutants`` they are measured, too, and all in another thread order on the first input.
    ``full_size`` tells that the problem's own sizes are those of a GPU, which not every style is
    meant for. Returns the arguments of all calls for each input that is not rejected. Raises
    :class:`DeviceError`.
    """
    arguments: list[Arguments] = []
    for spec in specs:
        beside = mutants.wanted(base, spec) if mutants else ()
        unit = worker.measure(
            spec,
            correct.originals,
            (*correct.benign, *beside),
            check_order=mutants is not None and not base["inputs"],
        )
        measured(spec, unit)
        _require_machine(unit, spec)
        if full_size and not spec.overrides:
            correct = _drop_unfit(base, correct, unit, official=spec.group == "official")
        record = input_record(spec, unit)
        base["inputs"].append(record)
        if mutants:
            mutants.measured(base, unit)
        drawn = spec.group == PROTOCOL  # without regard to validity: it decides no admission
        if unit.broken and not drawn:
            base["refused"] = _not_admitted(problem, spec, unit.rejected)
            return arguments
        if not unit.rejected and unit.facts is not None:
            arguments.append(unit.facts.arguments)
            _note_dtypes(base, unit.facts.output_dtypes)
            if drawn:
                continue
            if spec.group == "official":
                _drop_strays(base["calls"], unit)
            refusal = gate.refusal(
                _correct(unit),
                official=spec.group == "official",
                magnitude=unit.facts.magnitude,
                reference_error=unit.facts.reference_error,
                bound=gate.admission_bound(unit.facts.output_dtypes),
            )
            if refusal:
                base["refused"] = _not_admitted(problem, spec, refusal)
                return arguments
    _rebase(base)
    if not any(call["styles"] for call in base["calls"]):
        reasons = "; ".join(f"{c['id']} {c['not_admitted']}" for c in base["calls"])
        base["refused"] = f"no style to mutate is admitted: {reasons}"
    unfit = [r for r in base["inputs"] if r["group"] == "official" and not r["valid"]]
    if unfit:
        base["refused"] = f"the official input {unfit[0]['id']} is not valid: {unfit[0]['reason']}"
    return arguments


def _require_machine(unit: UnitResult, spec: InputSpec) -> None:
    """Raises :class:`DeviceError` if the machine failed a correct kernel."""
    for cell in (*unit.fixed, *_benign_cells(unit)):
        if cell.lost:
            raise DeviceError(f"{cell.candidate} was lost: {cell.detail}", where=spec.id)


def _note_dtypes(base: dict[str, Any], dtypes: Iterable[str]) -> None:
    """Store which outputs are narrower than float32: protocols have rules of their own for them."""
    narrow = {dtype for dtype in dtypes if dtype in gate.ADMISSION_BOUNDS}
    if narrow:
        base["narrow_outputs"] = sorted({*base.get("narrow_outputs", ()), *narrow})


def _not_admitted(problem: Problem, spec: InputSpec, reason: str) -> str:
    """The reason a problem is refused; for a user's kernel, with what its author can do."""
    text = f"not admitted on input {spec.id}: {reason}"
    if problem.kernel is None:
        return text
    if spec.overrides:
        advice = (
            "the problem allows these sizes; if the kernel is not meant for them, say so:"
            " `// kernelassay: require ...`"
        )
    elif spec.group != "official":
        advice = (
            "the reference is defined on these values; if the kernel is not meant for them, say so:"
            f" `// kernelassay: skip {spec.id}`"
        )
    else:
        advice = "check the bindings and the launch in the header, then the kernel"
    return f"{text}\n  hint: {advice}"


def _drop_unfit(
    base: dict[str, Any], correct: population.CorrectKernels, unit: UnitResult, *, official: bool
) -> population.CorrectKernels:
    """Leave out the benign variants that full size asks too much of, where they say nothing.

    One thread to a row of millions is a correct kernel that takes longer than anybody waits, or one
    that adds up more rounding than a correct kernel may. One that faults is not correct, and stays.
    """
    unfit = {c.candidate: why for c in _benign_cells(unit) if (why := _unfit(c, unit, official))}
    if not unfit:
        return correct
    for record in base["benign"]:
        if record["id"] in unfit:
            record["unsupported"] = f"{unfit[record['id']]} at official sizes"
    unit.cells = [cell for cell in unit.cells if cell.candidate not in unfit]
    return replace(correct, benign=tuple(b for b in correct.benign if b.id not in unfit))


def _unfit(cell: Cell, unit: UnitResult, official: bool) -> str:
    if cell.outcome in _OVERTAXED:
        return f"ends with {cell.outcome}"
    if official and unit.facts is not None and cell.outcome == OK and not cell.findings:
        bound = gate.admission_bound(unit.facts.output_dtypes)
        limit = gate.official_limit(unit.facts.reference_error, bound)
        error = gate.exact_error(cell)
        if limit < error < math.inf:
            return f"strays {error:.2e} from float64 (limit {limit:.2g})"
    return ""


def _drop_strays(calls: Sequence[dict[str, Any]], unit: UnitResult) -> None:
    """Take a relaxed style from the calls on which its correct kernel is not within its bound."""
    cells = {cell.candidate: cell for cell in unit.fixed}
    for call in calls:
        for style in [s for s in call["styles"] if styles.STYLES[s].relaxed]:
            cell = cells[population.original_id(call["id"], style)]
            error, bound = gate.exact_error(cell), styles.STYLES[style].admission
            reason = f"strays {error:.2e} from float64 (limit {bound:g})" if error > bound else ""
            if cell.findings:
                reason = f"has a finding: {cell.findings[0].kind}"
            if reason:
                call["styles"].remove(style)
                call["not_admitted"][style] = reason


def _rebase(base: dict[str, Any]) -> None:
    """Hold benign variants of a dropped style against the call's leading one; without one, none."""
    left = {call["id"]: call["styles"] for call in base["calls"]}
    kept = []
    for record in base["benign"]:
        styles_left = left[record["call"]]
        if record["style"] in styles_left:
            kept.append(record)
        elif styles_left:
            kept.append({**record, "style": styles_left[0]})
    base["benign"] = kept


def input_record(spec: InputSpec, unit: UnitResult) -> dict[str, Any]:
    """What a plan stores of an input that the gate has measured, with its validity."""
    facts = unit.facts
    record: dict[str, Any] = {
        "id": spec.id,
        "group": spec.group,
        "spec": spec.to_json(),
        "digest": facts.digest if facts else "",
        "shapes": [list(s) for s in facts.shapes] if facts else [],
        "reference_error": facts.reference_error if facts and facts.finite else None,
        "benign_worst": None,
        "style_worst": {},
        "valid": False,
        "reason": unit.rejected,
    }
    if facts is not None and not unit.rejected:
        worst = gate.worst_error(_correct(unit))
        record["benign_worst"] = worst if math.isfinite(worst) else None
        record["style_worst"] = _relaxed_errors(unit)
        record["reason"] = facts.problem or gate.objection(facts.reference_error, worst)
        record["valid"] = not record["reason"]
        if spec.group == PROTOCOL and not record["valid"]:
            record["judges"] = "correct kernels"
    return record


def _correct(unit: UnitResult) -> list[Cell]:
    """The cells of kernels that are correct by construction and by no relaxed bound."""
    originals = (cell for cell in unit.fixed if _original_of(cell) and not _relaxed(cell))
    return [*originals, *_benign_cells(unit)]


def _benign_cells(unit: UnitResult) -> list[Cell]:
    return [cell for cell in unit.cells if cell.candidate.startswith(f"{BENIGN}/")]


def _relaxed_errors(unit: UnitResult) -> dict[str, float | None]:
    """By relaxed style, how far its correct kernels stray at most; None for a non-finite error."""
    worst: dict[str, float] = {}
    for cell in filter(_relaxed, unit.fixed):
        style = _original_of(cell)
        worst[style] = max(worst.get(style, 0.0), gate.exact_error(cell))
    return {s: error if math.isfinite(error) else None for s, error in worst.items()}


def _relaxed(cell: Cell) -> bool:
    style = _original_of(cell)
    return bool(style) and styles.STYLES[style].relaxed


def _original_of(cell: Cell) -> str:
    """The style of an original's cell, or an empty string for any other candidate."""
    role, _, rest = cell.candidate.partition("/")
    return rest.rpartition("/")[2] if role == ORIGINAL else ""
