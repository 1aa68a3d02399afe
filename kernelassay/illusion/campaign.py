"""Run kernels on the cases of strategies, in several processes; what is finished stays.

Each lane is a process that holds one bench per language, and each bench a worker process of its own
for the kernels: the lane draws inputs, computes references and grades, and no kernel sees those.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from kernelassay.cell import INFRASTRUCTURE, TIMEOUT
from kernelassay.errors import DeviceError, UnsupportedError
from kernelassay.execute.confinement import die_with_parent
from kernelassay.execute.execution import UNSUPPORTED, Bench, Execution
from kernelassay.host import machine, versions
from kernelassay.illusion.benches import RUNS, bench_for
from kernelassay.illusion.cases import inputs
from kernelassay.illusion.op import Language, Op, text_digest
from kernelassay.illusion.oracle import judge
from kernelassay.illusion.strategies import strategy
from kernelassay.illusion.trials import BENIGN, MUTANT, Subject, Trials, row
from kernelassay.oracle import output_digest
from kernelassay.session import TRIALS, Session

Where = Literal["cpu", "cuda"]

VERSIONS = ("kernelassay", "numpy", "torch", "triton")
"""What outputs may depend on."""

PART = 8
"""Kernels of one operator in a unit of work: they share inputs and references."""
TIMEOUTS = 2
"""After so many cases on which a kernel does not end, it is not run on the others of a strategy."""


@dataclass(frozen=True, slots=True)
class Group:
    """Kernels that take the same cases and should compute the same: those of one operator.

    ``population`` has all generated mutants, whether among the ``subjects`` or not.
    """

    op: Op
    subjects: tuple[Subject, ...]
    population: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A campaign. ``device`` is where Triton and CUDA kernels run; NumPy ones run on the CPU."""

    groups: tuple[Group, ...]
    strategies: tuple[str, ...]
    seed: int
    count: int
    device: Where
    seconds: float

    def manifest(self) -> dict[str, Any]:
        """The plan's identity, with the facts of this machine."""
        kernels = {
            group.op.name: {one.name: text_digest(one.text) for one in group.subjects}
            for group in self.groups
        }
        return {
            "kind": TRIALS,
            "kernels": kernels,
            "strategies": list(self.strategies),
            "seed": self.seed,
            "count": self.count,
            "device": self.device,
            "limit": self.seconds,
            "versions": versions(VERSIONS),
            "machine": machine(),
        }


@dataclass(frozen=True, slots=True)
class Unit:
    """Some kernels of an operator on the cases of every strategy: one lane compiles them once."""

    op: Op
    part: int
    subjects: tuple[Subject, ...]


def device_of(language: Language, where: Where) -> str:
    """The device of :mod:`kernelassay.illusion.benches` that runs a language here."""
    return "cuda" if where == "cuda" and "cuda" in RUNS[language] else RUNS[language][0]


def units(plan: Plan) -> list[Unit]:
    """The units of work of a plan, those of most elements first."""
    found = [
        Unit(group.op, at // PART, group.subjects[at : at + PART])
        for group in plan.groups
        for at in range(0, len(group.subjects), PART)
    ]
    return sorted(found, key=_elements, reverse=True)


def _elements(unit: Unit) -> int:
    return len(unit.subjects) * unit.op.schema.all_elements()


def run(plan: Plan, root: Path, jobs: int, done: Callable[[Unit, int, int], None]) -> Trials:
    """Run what a plan still lacks, with ``jobs`` lanes; ``done`` hears of every finished unit.

    Raises as :meth:`Session.create`, and :class:`DeviceError` if a lane's process is lost.
    """
    session = Session.create(root, plan.manifest())
    try:
        trials = Trials(session)
        for group in plan.groups:
            trials.write_operator(group.op, group.subjects, group.population)
        every = units(plan)
        left = [unit for unit in every if _left(plan, trials, unit)]
        finished = len(every) - len(left)
        for unit in _each(plan, root, left, jobs):
            finished += 1
            done(unit, finished, len(every))
        return trials
    finally:
        session.close()


def _left(plan: Plan, trials: Trials, unit: Unit) -> list[str]:
    """The strategies whose trials of a unit are not stored yet."""
    return [name for name in plan.strategies if not trials.has(unit.op.name, name, unit.part)]


def _each(plan: Plan, root: Path, left: Sequence[Unit], jobs: int) -> Iterable[Unit]:
    """Units as they are done, by processes that have inherited nothing."""
    if not left:
        return
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    lanes = ProcessPoolExecutor(
        min(jobs, len(left)),
        mp_context=context,
        initializer=_start,
        initargs=(plan, root, stop),
    )
    pending: dict[Future[None], Unit] = {lanes.submit(_do, unit): unit for unit in left}
    try:
        while pending:
            ready, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in ready:
                unit = pending.pop(future)
                future.result()
                yield unit
    except BrokenProcessPool as error:
        raise DeviceError(
            "a lane's process ended; what was finished is kept",
            where=str(root),
            hint="run the same command again; with less memory per core, use fewer --jobs",
        ) from error
    finally:
        stop.set()
        lanes.shutdown(wait=True, cancel_futures=True)


# ---- in a lane ----------------------------------------------------------------------------------


class Lane:
    """What one process keeps: its benches, and the plan."""

    def __init__(self, plan: Plan, trials: Trials, stop: Event) -> None:
        self.plan = plan
        self.trials = trials
        self.stop = stop
        self._benches: dict[str, Bench] = {}

    def do(self, unit: Unit) -> None:
        """Run what a unit lacks and store it, strategy by strategy, until the run ends."""
        for name in _left(self.plan, self.trials, unit):
            try:
                rows = self._rows(unit, name)
            except MemoryError as error:
                raise DeviceError(
                    f"memory ran out: {error}",
                    where=f"{unit.op.name}, {name}",
                    hint="what was finished is kept; use fewer --jobs, or smaller sizes",
                ) from error
            if rows is None:
                return
            self.trials.write(unit.op.name, name, unit.part, rows)

    def _rows(self, unit: Unit, name: str) -> list[dict[str, Any]] | None:
        """The trials of a unit on one strategy's cases; ``None`` if the run ends before."""
        op = unit.op
        cases = strategy(name).cases(
            op.schema, op.dtypes, seed=self.plan.seed, count=self.plan.count
        )
        timeouts = dict.fromkeys((one.name for one in unit.subjects), 0)
        rows = []
        for case in cases:
            if self.stop.is_set():
                return None
            arrays = inputs(case, op.schema)
            digested = output_digest(arrays)
            expected = op.expected(arrays, case.sizes)
            for subject in unit.subjects:
                execution = self._execution(op, subject, arrays, timeouts)
                judged = judge(execution, expected, op, case.dtype)
                tolerance = op.tolerance(case.dtype)
                rows.append(row(subject, op.name, case, digested, tolerance, execution, judged))
        return rows

    def _execution(
        self,
        op: Op,
        subject: Subject,
        arrays: Sequence[NDArray[Any]],
        timeouts: dict[str, int],
    ) -> Execution:
        if timeouts[subject.name] >= TIMEOUTS:
            detail = f"not run: it did not end on {TIMEOUTS} cases before"
            return Execution(TIMEOUT, detail, None)
        execution = self._run(op, subject, arrays)
        if execution.outcome in (INFRASTRUCTURE, TIMEOUT):  # another load of the machine may help
            execution = self._run(op, subject, arrays)
        if execution.outcome == INFRASTRUCTURE:
            raise DeviceError(
                f"could not run a kernel, twice: {execution.detail}",
                where=subject.name,
                hint="what was finished is kept; run the same command again",
            )
        timeouts[subject.name] += execution.outcome == TIMEOUT
        return execution

    def _run(self, op: Op, subject: Subject, arrays: Sequence[NDArray[Any]]) -> Execution:
        try:
            return self._bench(op).run(subject.text, arrays)
        except UnsupportedError as error:
            if subject.role not in (MUTANT, BENIGN):
                raise
            return Execution(UNSUPPORTED, str(error), None)

    def _bench(self, op: Op) -> Bench:
        if op.language not in self._benches:
            device = device_of(op.language, self.plan.device)
            self._benches[op.language] = bench_for(op.language, device, self.plan.seconds)
        return self._benches[op.language]

    def close(self) -> None:
        """End its processes."""
        for bench in self._benches.values():
            bench.close()


_lane: Lane | None = None


def _start(plan: Plan, root: Path, stop: Event) -> None:
    global _lane  # noqa: PLW0603  one per process, made by its initializer
    # An interrupt goes to the whole group; the parent alone decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A lane that is left would wait for work: it holds the other end of its own queue.
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is None or os.getppid() != parent.pid:
        os._exit(1)
    _lane = Lane(plan, Trials.open(root), stop)
    atexit.register(_lane.close)


def _do(unit: Unit) -> None:
    assert _lane is not None
    _lane.do(unit)
