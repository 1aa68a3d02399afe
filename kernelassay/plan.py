"""Planning one problem: which mutants, which inputs, and whether its substrate may be used.

The result is a plain record (see :func:`make_plan`) that is stored as JSON and from which the
measurement can be repeated without planning again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernelassay import gate
from kernelassay.cell import Cell
from kernelassay.compile import classify
from kernelassay.errors import KernelassayError
from kernelassay.execute.bench import BENIGN, MUTANT, ORIGINAL, Candidate
from kernelassay.execute.cpu.build import BuildFailure, Image, build_images
from kernelassay.execute.cpu.toolchain import Compiler
from kernelassay.execute.worker import CallInfo, UnitResult, Worker
from kernelassay.inputs import InputSpec
from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.mutation import Edit, Mutation, Rule, apply, mutants
from kernelassay.mutation.benign import BENIGN as BENIGN_RULES
from kernelassay.problem import Problem


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan depends on besides the problem."""

    rules: tuple[Rule, ...]
    quick: bool
    backend: str
    max_inputs: int | None = None


@dataclass(frozen=True, slots=True)
class Workshop:
    """What a lane needs to turn sources into images: compiler, runtime and cache."""

    compiler: Compiler
    runtime: Path
    cache: Path

    def build(self, sources: Mapping[str, str]) -> dict[str, Image | BuildFailure]:
        """Images (or failures) by key."""
        return build_images(sources, self.cache, self.compiler)


Progress = Callable[[str], None]


def mutated_style(call: CallInfo) -> str:
    """The style faults are injected into; the other one is a benign variant."""
    return OPTIMISED if OPTIMISED in call.sources else PLAIN


def make_plan(
    problem: Problem, worker: Worker, shop: Workshop, options: PlanOptions, progress: Progress
) -> dict[str, Any]:
    """Trace, lower, mutate, classify, gate and admit one problem.

    A problem that cannot be used yields a plan with ``refused`` set and no mutants; it is never
    dropped.
    """
    base = refused_plan(problem, "")
    try:
        progress("tracing")
        calls = worker.open(problem)
        base["calls"] = [_call_record(call) for call in calls]
        progress("compiling originals")
        originals = _originals(calls, shop)
        benign, unbuilt = _benign(problem, calls, shop)
        base["benign"] = [*(_benign_record(c) for c in benign), *unbuilt]
        progress("checking inputs")
        _gate(base, worker, originals, benign, options)
        if base["refused"]:
            return base
        progress("mutating")
        base["mutants"] = _mutants(problem, calls, shop, options, progress)
    except KernelassayError as error:
        base["refused"] = str(error)
    return base


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


def candidates_of(
    plan: Mapping[str, Any], shop: Workshop
) -> tuple[dict[str, Candidate], list[Candidate]]:
    """The originals by call, and the benign variants and distinct mutants, with their images."""
    sources = {call["id"]: call["sources"][call["style"]] for call in plan["calls"]}
    texts = {f"{ORIGINAL}/{call}": text for call, text in sources.items()}
    texts |= {b["id"]: b["source"] for b in plan["benign"] if not b["unsupported"]}
    distinct = [m for m in plan["mutants"] if m["status"] == "distinct" and not m["unsupported"]]
    texts |= {m["id"]: mutant_text(m, sources[m["call"]]) for m in distinct}
    images = shop.build(texts)
    failed = [key for key, image in images.items() if isinstance(image, BuildFailure)]
    if failed:
        raise RuntimeError(f"images that built during planning no longer build: {failed[:3]}")
    built = {key: image for key, image in images.items() if isinstance(image, Image)}
    originals = {
        call: Candidate(f"{ORIGINAL}/{call}", ORIGINAL, call, text, built[f"{ORIGINAL}/{call}"])
        for call, text in sources.items()
    }
    rest = [
        Candidate(record["id"], role, record["call"], texts[record["id"]], built[record["id"]])
        for role, records in ((BENIGN, plan["benign"]), (MUTANT, distinct))
        for record in records
        if record["id"] in built
    ]
    return originals, rest


def mutant_text(record: Mapping[str, Any], original: str) -> str:
    """A mutant's source, from its stored edits."""
    edits = tuple(Edit(start, end, text) for start, end, text in record["edits"])
    return apply(original, Mutation(edits))


def spec_of(record: Mapping[str, Any]) -> InputSpec:
    """The input spec of a stored input record."""
    return InputSpec.from_json(record["spec"])


def _call_record(call: CallInfo) -> dict[str, Any]:
    return {
        "id": call.id,
        "template": call.template,
        "style": mutated_style(call),
        "nodes": list(call.nodes),
        "sources": dict(call.sources),
    }


def _originals(calls: Sequence[CallInfo], shop: Workshop) -> dict[str, Candidate]:
    texts = {f"{ORIGINAL}/{c.id}": c.sources[mutated_style(c)] for c in calls}
    images = shop.build(texts)
    originals: dict[str, Candidate] = {}
    for call in calls:
        key = f"{ORIGINAL}/{call.id}"
        image = images[key]
        if isinstance(image, BuildFailure):
            what = image.unsupported or image.log[:500]
            raise KernelassayError(f"the correct kernel does not build: {what}", where=call.id)
        originals[call.id] = Candidate(key, ORIGINAL, call.id, texts[key], image)
    return originals


def _benign(
    problem: Problem, calls: Sequence[CallInfo], shop: Workshop
) -> tuple[list[Candidate], list[dict[str, Any]]]:
    """Correct variants: the other style, and the benign rewrites of the mutated style."""
    texts: dict[str, tuple[str, str]] = {}
    for call in calls:
        style = mutated_style(call)
        source = call.sources[style]
        for other, text in sorted(call.sources.items()):
            if other != style:
                texts[f"benign/{call.id}/{other}"] = (call.id, text)
        found = mutants(source, problem=problem.id, call=call.id, style=style, rules=BENIGN_RULES)
        for mutant in found.mutants:
            if mutant.twin_of is None:
                texts[f"benign/{call.id}/{mutant.rule}-{mutant.id}"] = (call.id, mutant.source)
    images = shop.build({key: text for key, (_, text) in texts.items()})
    built: list[Candidate] = []
    unbuilt: list[dict[str, Any]] = []
    for key, (call_id, text) in texts.items():
        image = images[key]
        if isinstance(image, BuildFailure):
            reason = image.unsupported or image.log[:500]
            unbuilt.append({"id": key, "call": call_id, "source": text, "unsupported": reason})
        else:
            built.append(Candidate(key, BENIGN, call_id, text, image))
    return built, unbuilt


def _benign_record(candidate: Candidate) -> dict[str, Any]:
    return {
        "id": candidate.id,
        "call": candidate.call,
        "source": candidate.source,
        "unsupported": "",
    }


def _gate(
    base: dict[str, Any],
    worker: Worker,
    originals: Mapping[str, Candidate],
    benign: Sequence[Candidate],
    options: PlanOptions,
) -> None:
    """Measure references, originals and benign variants on every input; admit or refuse."""
    specs = worker.battery(options.quick)
    if options.max_inputs is not None:
        specs = specs[: options.max_inputs]
    for spec in specs:
        unit = worker.measure(spec, originals, benign)
        record = _input_record(spec, unit)
        base["inputs"].append(record)
        if not unit.rejected and unit.facts is not None:
            refusal = gate.refusal(unit.facts.reference_error, _correct(unit))
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
        record["benign_worst"] = gate.worst_error(_correct(unit))
        record["reason"] = gate.objection(facts.reference_error, record["benign_worst"])
        record["valid"] = not record["reason"]
    return record


def _correct(unit: UnitResult) -> list[Cell]:
    """The cells of kernels that are correct by construction."""
    return [c for c in unit.fixed if c.candidate.startswith(ORIGINAL)] + unit.cells


def _mutants(
    problem: Problem,
    calls: Sequence[CallInfo],
    shop: Workshop,
    options: PlanOptions,
    progress: Progress,
) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    texts: dict[str, str] = {}
    for position, call in enumerate(calls, 1):
        style = mutated_style(call)
        source = call.sources[style]
        found = mutants(
            source, problem=problem.id, call=call.id, style=style, rules=options.rules
        ).mutants
        progress(f"identifying {len(found)} mutants of call {position} of {len(calls)}")
        identities = classify.classify(
            source,
            [(m.id, m.source) for m in found],
            cache=shop.cache,
            backend=options.backend,
        )
        for mutant in found:
            identity = identities[mutant.id]
            record: dict[str, Any] = {
                "id": mutant.id,
                "call": call.id,
                "style": style,
                "rule": mutant.rule,
                "family": mutant.family,
                "line": mutant.line,
                "edits": [list(asdict(edit).values()) for edit in mutant.edits],
                "status": identity.status,
                "reason": identity.reason,
                "twin": identity.twin,
                "image": identity.digest,
                "unsupported": "",
            }
            records.append(record)
            if identity.status == "distinct":
                texts[mutant.id] = mutant.source
    progress(f"compiling {len(texts)} mutants")
    images = shop.build(texts)
    for record in records:
        image = images.get(record["id"])
        if isinstance(image, BuildFailure):
            record["unsupported"] = image.unsupported or image.log[:500]
    return records
