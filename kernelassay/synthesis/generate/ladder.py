"""The ladder of knowledge: what each kind of generator kills of what a checker misses.

For each problem of a session the mutants are taken that some input of the session proves wrong and
that the protocol accepts: its survivors. Each rung makes inputs, and the survivors run on them,
fit or not. A *kill* is a survivor that the protocol's own rule rejects on an input that may judge
at its tolerance; a *false kill* one that it rejects only where correct kernels may fail, too.
Beside them run the mutants that no input of the session proves wrong, where each one proven is new.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelassay.analysis.mechanism import MECHANISMS, fates, mechanisms
from kernelassay.analysis.plain import plain
from kernelassay.analysis.score import Share, problem_facts, unproven
from kernelassay.analysis.verdicts import rejected_relaxed
from kernelassay.errors import DeviceError, KernelassayError, UnsupportedError, UsageError
from kernelassay.execute.crew import each
from kernelassay.execute.toolbox import Toolbox
from kernelassay.execute.worker import Worker
from kernelassay.input_shapes import Overrides, Small
from kernelassay.matrix import ProblemMatrix
from kernelassay.mutation import diff, mutant_text
from kernelassay.mutation.rule import FAMILIES
from kernelassay.problem import Problem
from kernelassay.protocols import Protocol
from kernelassay.small import small_sizes_limited
from kernelassay.synthesis.generate.bed import Bed
from kernelassay.synthesis.generate.target import Generator, Survivor, Target, Tried, WhiteBox
from kernelassay.tasks import run_task

BUDGET = 8
"""Inputs of a problem that a rung may use, unless told otherwise."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Survivors:
    """Who is to be killed on one problem: ``missed`` mutants by the reason (RIPR) they survive.

    ``unobserved`` mutants are those that no input of the session proves wrong, by the reason on all
    of its inputs.
    """

    missed: Mapping[str, str]
    unobserved: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class InputResult:
    """One input of a rung, with what came of it as in :class:`Tried`.

    ``witnessed`` has the unobserved mutants alone. ``objection`` is empty for a valid input,
    ``aim`` where a generator does not say which faults it is after.
    """

    id: str
    aim: str
    objection: str
    spec: Mapping[str, Any]
    killed: tuple[str, ...]
    falsely: tuple[str, ...]
    witnessed: tuple[str, ...]
    correct: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProblemRung:
    """A rung on one problem. ``cells`` counts kernels that ran, correct ones and all.

    ``failures`` are those of a :class:`Proposal`; ``refused`` tells why the rung did nothing.
    """

    problem: str
    survivors: int
    unobserved: int
    inputs: tuple[InputResult, ...] = ()
    cells: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    refused: str = ""
    seconds: float = 0.0

    def all(self, kind: str) -> frozenset[str]:
        """What any of its inputs has in a field of :class:`InputResult`."""
        return frozenset(name for one in self.inputs for name in getattr(one, kind))


@dataclass(frozen=True, slots=True)
class Climbed:
    """All rungs on one problem, in order, and the kernels that ran to locate its ceilings."""

    ceiling_cells: int
    rungs: tuple[ProblemRung, ...]


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung on all problems. ``killed`` is of the survivors, ``valid`` of the inputs.

    ``false_kills`` counts the survivors that the checker rejects on an input that may not judge,
    ``correct_rejected`` the correct kernels that it rejects on any. ``new_witnesses`` is of the
    unobserved mutants.
    """

    name: str
    blind: bool
    killed: Share
    by_mechanism: Mapping[str, Share]
    by_family: Mapping[str, Share]
    valid: Share
    false_kills: int
    correct_rejected: int
    new_witnesses: Share
    cells: int
    failures: Mapping[str, int]
    seconds: float
    problems: tuple[ProblemRung, ...]


@dataclass(frozen=True, slots=True)
class Ladder:
    """The experiment. ``aside`` has the problems without one, with the reason.

    ``ceiling_cells`` counts the kernels that ran, once for all rungs, to locate the ceilings.
    """

    sessions: str
    protocol: str
    tolerance: float
    budget: int
    seed: int
    survivors: int
    unobserved: int
    ceiling_cells: int
    aside: Mapping[str, str]
    rungs: tuple[Rung, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return plain(self)


# ---- who is to be killed -------------------------------------------------------------------------


def survivors_of(matrix: ProblemMatrix, protocol: Protocol, tolerance: float) -> Survivors:
    """The mutants of a problem for rungs, witnesses counted at a tolerance.

    Raises :class:`SessionError` if the protocol cannot be scored on the problem.
    """
    unfair = rejected_relaxed((matrix,), protocol)
    fate = dict(zip(matrix.candidates, map(str, fates(matrix, protocol)), strict=True))
    undecided = set(unproven(matrix, tolerance))
    missed: dict[str, str] = {}
    everywhere = mechanisms(matrix, np.arange(len(matrix.inputs)), protocol.view)
    unobserved: dict[str, str] = {}
    for fact in problem_facts(matrix, (), tolerance):
        if (fact.problem, fact.call, fact.style) in unfair:
            continue
        if fact.witnessed and fate[fact.id] in MECHANISMS:
            missed[fact.id] = fate[fact.id]
        elif not fact.witnessed and fact.id not in undecided:
            unobserved[fact.id] = str(everywhere[matrix.index[fact.id]])
    return Survivors(missed, unobserved)


def white_box(plan: Mapping[str, Any], reasons: Mapping[str, str]) -> tuple[Survivor, ...]:
    """Some mutants, with the reasons they survive, as a generator that is not blind sees them."""
    sources = {(c["id"], s): text for c in plan["calls"] for s, text in c["sources"].items()}
    found = []
    for m in plan["mutants"]:
        if m["id"] in reasons:
            original = sources[m["call"], m["style"]]
            text = diff(original, mutant_text(m, original), m["rule"])
            why = reasons[m["id"]]
            found.append(Survivor(m["id"], m["call"], m["family"], m["rule"], text, why))
    return tuple(found)


# ---- the rungs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked of each rung: at most ``budget`` inputs of a problem, all from one ``seed``."""

    protocol: Protocol
    tolerance: float
    budget: int = BUDGET
    seed: int = 1
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Subject:
    """A problem with its matrix, and who is to be killed; ``official`` if it runs at full size."""

    problem: Problem
    matrix: ProblemMatrix
    who: Survivors
    official: bool = False


def climb(
    subjects: Sequence[Subject],
    generators: Sequence[Generator],
    tools: Toolbox,
    options: Options,
    progress: Progress = lambda step: None,
) -> Iterator[Climbed]:
    """Every generator on each problem, as they are done: a result per generator.

    Raises :class:`DeviceError` where a machine failed, :class:`UsageError` if a recording lacks an
    answer.
    """
    by_id = {subject.problem.id: subject for subject in subjects}

    def one(problem: Problem, worker: Worker) -> Climbed:
        return _climb(by_id[problem.id], generators, worker, tools, options, progress)

    return each([subject.problem for subject in subjects], tools, options.jobs, one)


def _climb(
    subject: Subject,
    generators: Sequence[Generator],
    worker: Worker,
    tools: Toolbox,
    options: Options,
    progress: Progress,
) -> Climbed:
    who, plan, name = subject.who, subject.matrix.plan, subject.problem.id
    empty = ProblemRung(name, len(who.missed), len(who.unobserved))
    everyone = (*who.missed, *who.unobserved)
    try:
        progress(f"{name}: building {len(everyone)} mutants")
        bed = Bed(
            plan,
            subject.problem,
            worker,
            tools,
            options.protocol,
            options.tolerance,
            everyone,
            _small(subject),
        )
        progress(f"{name}: looking for the ceilings")
        target = bed.target(options.seed)
    except DeviceError:
        raise
    except KernelassayError as error:
        return Climbed(0, tuple(replace(empty, refused=str(error)) for _ in generators))
    ceilings = bed.runs
    rungs = (_rung(empty, subject, one, bed, target, options, progress) for one in generators)
    return Climbed(ceilings, tuple(rungs))


def _small(subject: Subject) -> Overrides:
    """The sizes that inputs are made for. Raises :class:`UnsupportedError` if there are none."""
    if not subject.official:
        return ()
    found: Small = run_task(small_sizes_limited, subject.problem)
    if found.reason:
        raise UnsupportedError(f"has no small inputs: {found.reason}", where=subject.problem.id)
    return found.sizes


def _rung(
    empty: ProblemRung,
    subject: Subject,
    generator: Generator,
    bed: Bed,
    target: Target,
    options: Options,
    progress: Progress,
) -> ProblemRung:
    start, before = time.monotonic(), bed.runs
    who = subject.who
    progress(f"{empty.problem}: {generator.name}")
    seen = None
    if not generator.blind:
        plan = subject.matrix.plan
        seen = WhiteBox(
            white_box(plan, who.missed),
            white_box(plan, who.unobserved),
            bed.test,
            lambda: bed.runs - before,
        )
    try:
        proposal = generator.propose(target, options.budget, options.seed, seen)
    except (DeviceError, UsageError):
        raise
    except KernelassayError as error:
        return replace(empty, refused=str(error))
    results = []
    for number, made in enumerate(proposal.specs):
        progress(f"{empty.problem}: {generator.name} {number + 1} of {len(proposal.specs)}")
        tested = bed.test(made, (*who.missed, *who.unobserved))
        results.append(_result(tested, who, proposal.aims.get(made.id, "")))
    return replace(
        empty,
        inputs=tuple(results),
        cells=bed.runs - before,
        failures=dict(proposal.failures),
        seconds=round(time.monotonic() - start, 1),
    )


def _result(tested: Tried, who: Survivors, aim: str) -> InputResult:
    return InputResult(
        id=tested.record["id"],
        aim=aim,
        objection=tested.objection,
        spec=tested.record["spec"],
        killed=tuple(sorted(tested.killed & who.missed.keys())),
        falsely=tuple(sorted(tested.falsely & who.missed.keys())),
        witnessed=tuple(sorted(tested.witnessed & who.unobserved.keys())),
        correct=tuple(sorted(tested.correct)),
    )


# ---- the account ---------------------------------------------------------------------------------


def account(
    generator: Generator, subjects: Sequence[Subject], found: Sequence[ProblemRung]
) -> Rung:
    """One rung over all problems; asserts that mechanisms and families add up."""
    killed = {(one.problem, name) for one in found for name in one.all("killed")}
    family = {
        (s.problem.id, m["id"]): m["family"] for s in subjects for m in s.matrix.plan["mutants"]
    }
    fate = {(s.problem.id, name): why for s in subjects for name, why in s.who.missed.items()}

    def shares(key: Mapping[tuple[str, str], str], order: Sequence[str]) -> dict[str, Share]:
        totals = Counter(key[one] for one in fate)
        counts = Counter(key[one] for one in killed)
        assert killed <= fate.keys() and counts.total() == len(killed)
        return {name: Share(counts[name], totals[name]) for name in order if totals[name]}

    inputs = [one for result in found for one in result.inputs]
    failures: Counter[str] = Counter()
    for result in found:
        failures.update(result.failures)
    return Rung(
        name=generator.name,
        blind=generator.blind,
        killed=Share(len(killed), len(fate)),
        by_mechanism=shares(fate, MECHANISMS),
        by_family=shares(family, FAMILIES),
        valid=Share(sum(not one.objection for one in inputs), len(inputs)),
        false_kills=sum(len(one.all("falsely")) for one in found),
        correct_rejected=sum(len(one.all("correct")) for one in found),
        new_witnesses=Share(
            sum(len(one.all("witnessed")) for one in found), sum(one.unobserved for one in found)
        ),
        cells=sum(one.cells for one in found),
        failures=dict(failures),
        seconds=round(sum(one.seconds for one in found), 1),
        problems=tuple(found),
    )
