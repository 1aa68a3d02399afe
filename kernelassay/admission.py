"""The admission report: which problems get a substrate, how precise it is, or why they get none.

Each problem goes the way of a run up to the gate (trace, lower, build, run the correct kernels on
valid inputs against float64). If asked for, its mutants are counted; none is run.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kernelassay import __version__, plan, population
from kernelassay.compile.classify import STATUSES
from kernelassay.execute.cpu.toolchain import find_compiler
from kernelassay.execute.crew import each
from kernelassay.execute.messages import CallInfo
from kernelassay.execute.toolbox import CpuToolbox, Toolbox
from kernelassay.execute.worker import Worker
from kernelassay.mutation.catalogue import RULES
from kernelassay.plan import GateOptions
from kernelassay.problem import Problem
from kernelassay.shrink import shrink_limited
from kernelassay.shrink_search import Scaled, ShrinkReport
from kernelassay.tasks import run_task

_STAGE_OF_STEP = {"tracing": "trace", "compiling the correct kernels": "build"}
_NO_KERNEL = "no kernel for: "


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One call of a substrate: its template, its styles, the ATen overloads it stands in for."""

    id: str
    template: str
    styles: tuple[str, ...]
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resized:
    """One size before and after; ``place`` is ``module``, or ``code`` for a literal in the code."""

    name: str
    before: int
    after: int
    place: str

    @classmethod
    def of(cls, scaled: Scaled) -> Resized:
        """The record of one entry of ``ShrinkReport.scaled``."""
        return cls(*scaled, "code" if "@" in scaled[0] else "module")


@dataclass(frozen=True, slots=True)
class Shrinking:
    """How a problem was scaled down; the fields are those of ``shrink.ShrinkReport``.

    ``original_spread`` was measured at the original sizes but for those in ``original_at``; it is
    None where no sizes near the original could be run.
    """

    sizes: tuple[Resized, ...]
    work: int
    notes: tuple[str, ...]
    spread: float | None
    original_spread: float | None
    original_at: tuple[Resized, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Shrinking:
        """From the fields as JSON values."""
        sizes = {
            key: tuple(Resized(**size) for size in data[key]) for key in ("sizes", "original_at")
        }
        return cls(**{**_tuples(data), **sizes})

    @classmethod
    def of(cls, report: ShrinkReport) -> Shrinking:
        """What the admission report keeps of a shrink report."""
        original = report.original
        return cls(
            sizes=tuple(map(Resized.of, report.scaled)),
            work=report.work,
            notes=report.notes,
            spread=report.spread,
            original_spread=original.value if original else None,
            original_at=tuple(map(Resized.of, original.scaled)) if original else (),
        )


@dataclass(frozen=True, slots=True)
class MutantCount:
    """So many mutants of one rule in one style ended in one status (``distinct``, ...)."""

    style: str
    family: str
    rule: str
    status: str
    count: int


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of one problem.

    ``refused`` and ``stage`` are empty for an admitted problem. ``worst_error`` is the largest
    critical tolerance, against float64, of any correct kernel (originals, other styles and, if
    asked for, benign rewrites) over the ``valid`` ones of the ``inputs`` tried; ``worst_input``
    names the input. ``shrink`` tells what was scaled, and what of the output's spread is left; None
    where nothing was asked to be scaled. ``mutants`` are counted if asked for.
    """

    problem: str
    level: int
    official_shape: bool
    shrink: Shrinking | None
    kernels: tuple[KernelFacts, ...]
    inputs: int
    valid: int
    worst_error: float | None
    worst_input: str
    stage: str
    refused: str
    seconds: float
    mutants: tuple[MutantCount, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Admission:
        """The inverse of :meth:`to_json`."""
        fields = {key: value for key, value in data.items() if key != "ops"}
        fields["shrink"] = Shrinking.from_json(data["shrink"]) if data["shrink"] else None
        fields["kernels"] = tuple(KernelFacts(**_tuples(kernel)) for kernel in data["kernels"])
        fields["mutants"] = tuple(MutantCount(**count) for count in data["mutants"])
        return cls(**fields)

    @property
    def ops(self) -> tuple[str, ...]:
        """The distinct overloads that kernels stand in for, in order."""
        return tuple(dict.fromkeys(op for kernel in self.kernels for op in kernel.ops))

    def to_json(self) -> dict[str, Any]:
        """The fields, and ``ops``, as plain JSON values."""
        return {**asdict(self), "ops": list(self.ops)}


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """What to try each problem on. ``shrink`` leaves the own suite's problems as they are.

    ``mutants`` asks for a census of the mutants of all rules, or of a ``sample`` of so many.
    """

    shrink: bool
    gate: GateOptions
    jobs: int = 1
    mutants: bool = False
    sample: int | None = None


def admissions(
    problems: Sequence[Problem],
    options: AdmissionOptions,
    cache: Path,
    store: Path | None = None,
) -> Iterator[Admission]:
    """The admission of each problem, as they are done; ``cache`` keeps the images.

    What ``store`` has of the same problem with the same options and version is not done again.
    """
    kept = {problem.id: _stored(store, problem, options) for problem in problems}
    yield from (found for found in kept.values() if found)
    problems = [problem for problem in problems if not kept[problem.id]]
    tools = CpuToolbox.at(cache)

    def one(problem: Problem, worker: Worker) -> Admission:
        found = admission(problem, worker, tools, options)
        _keep(store, problem, options, found)
        return found

    yield from each(problems, tools, options.jobs, one)


def _stored(store: Path | None, problem: Problem, options: AdmissionOptions) -> Admission | None:
    if store is None:
        return None
    try:
        record = json.loads(_path(store, problem).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or record.get("key") != _key(problem, options):
        return None
    try:
        return Admission.from_json(record["admission"])
    except (KeyError, TypeError):  # damaged: it is found again
        return None


def _keep(
    store: Path | None, problem: Problem, options: AdmissionOptions, found: Admission
) -> None:
    if store is None:
        return
    record = {"key": _key(problem, options), "admission": found.to_json()}
    path = _path(store, problem)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(record, indent=1))
    fresh.replace(path)


def _path(store: Path, problem: Problem) -> Path:
    return store / "admission" / f"{problem.id}.json"


def _key(problem: Problem, options: AdmissionOptions) -> list[Any]:
    import torch

    versions = (__version__, torch.__version__, find_compiler().version)
    key = [*versions, problem.digest, *asdict(replace(options, jobs=0)).values()]
    return list(json.loads(json.dumps(key)))  # as a stored key reads


def admission(
    problem: Problem, worker: Worker, tools: Toolbox, options: AdmissionOptions
) -> Admission:
    """Shrink (if asked to), trace, lower, build and gate one problem."""
    start = time.monotonic()
    report: ShrinkReport | None = None
    if options.shrink and problem.origin != "suite":
        report = run_task(shrink_limited, problem)
        if report.reason:
            refused = plan.refused_plan(problem, f"cannot be shrunk: {report.reason}")
            return _facts(refused, report, "shrink", time.monotonic() - start)
        problem = report.problem
    steps: list[str] = []
    made, calls = plan.admit(
        problem, worker, tools, options.gate, run=run_task, progress=steps.append
    )
    stage = _stage(made, steps[-1]) if made["refused"] else ""
    counts: tuple[MutantCount, ...] = ()
    if options.mutants and not made["refused"]:
        chosen = [(c, r["styles"]) for c, r in zip(calls, made["calls"], strict=True)]
        rules = tuple(rule.id for rule in RULES)
        found = run_task(
            population.census, problem.id, chosen, tools.cache, rules, "auto", options.sample
        )
        counts = tuple(MutantCount(*what, count) for what, count in sorted(found.items()))
    facts = _facts(made, report, stage, time.monotonic() - start, calls)
    return replace(facts, mutants=counts)


def _stage(made: Mapping[str, Any], step: str) -> str:
    if _NO_KERNEL in made["refused"]:
        return "lower"
    return _STAGE_OF_STEP.get(step) or ("gate" if made["inputs"] else "inputs")


def _facts(
    made: Mapping[str, Any],
    report: ShrinkReport | None,
    stage: str,
    seconds: float,
    calls: Sequence[CallInfo] = (),
) -> Admission:
    kernels = tuple(
        KernelFacts(call.id, call.template, tuple(sorted(call.sources)), call.ops) for call in calls
    )
    valid = [record for record in made["inputs"] if record["valid"]]
    worst = max(valid, key=lambda record: record["benign_worst"], default=None)
    return Admission(
        problem=made["problem"]["id"],
        level=made["problem"]["level"],
        official_shape=made["problem"]["official_shape"],
        shrink=Shrinking.of(report) if report and not report.reason else None,
        kernels=kernels,
        inputs=len(made["inputs"]),
        valid=len(valid),
        worst_error=worst["benign_worst"] if worst else None,
        worst_input=worst["id"] if worst else "",
        stage=stage,
        refused=made["refused"],
        seconds=round(seconds, 1),
    )


def mutant_totals(found: Iterable[Admission], by: str) -> dict[str, dict[str, int]]:
    """Mutants per status, summed by ``family``, ``style``, ``rule`` or ``problem``."""
    totals: dict[str, dict[str, int]] = {}
    for admitted in found:
        for count in admitted.mutants:
            name = admitted.problem if by == "problem" else getattr(count, by)
            row = totals.setdefault(name, dict.fromkeys(STATUSES, 0))
            row[count.status] += count.count
    return totals


def reason_counts(found: Iterable[Admission]) -> dict[str, int]:
    """How often each reason refuses a problem, most frequent first; numbers read ``N``.

    A problem without kernels for two operators counts for both.
    """
    counts: Counter[str] = Counter()
    for admitted in found:
        if admitted.refused:
            counts.update({f"{admitted.stage}: {kind}" for kind in _kinds(admitted)})
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _kinds(admitted: Admission) -> list[str]:
    first = admitted.refused.splitlines()[0]
    if _NO_KERNEL in first:
        return first.split(_NO_KERNEL, 1)[1].split("; ")
    text = first.replace(f"{admitted.problem}: ", "")
    text = re.sub(r"(?<=on input )\S+(?=:)", "X", text)
    return [re.sub(r"(?<![\w.])[-+]?\d[\d.]*(e[-+]?\d+)?", "N", text)]
