"""A campaign: problems into plans, plans into units of work, units into cells.

Problems go to *lanes*, each with one worker process. A unit of work is a problem on one input;
finished units are files, so an interrupted campaign is taken up where it stopped.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from kernelassay import __version__, cell, plan
from kernelassay.errors import NothingToTestError
from kernelassay.execute.cpu.build import build_runtime
from kernelassay.execute.cpu.toolchain import find_compiler
from kernelassay.execute.worker import UnitResult, Worker
from kernelassay.plan import PlanOptions
from kernelassay.population import Toolbox, candidates_of
from kernelassay.problem import Problem
from kernelassay.session import Session, inputs_of
from kernelassay.tasks import run_task

STOP_SECONDS = 15.0
"""How long a stopped lane may finish a compilation; it writes nothing any more."""


class Reporter(Protocol):
    """Receives progress; called from lane threads."""

    def problem_step(self, problem: str, step: str) -> None:
        """A problem entered a step of its planning."""

    def problem_planned(self, problem: str, plan: dict[str, Any]) -> None:
        """A problem's plan is complete."""

    def cells_done(self, problem: str, count: int) -> None:
        """Some cells were measured."""

    def problem_done(self, problem: str, plan: dict[str, Any]) -> None:
        """All units of a problem are finished."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """What to run. Two runs of equal campaigns yield equal digests."""

    problems: tuple[Problem, ...]
    options: PlanOptions
    jobs: int
    refused: tuple[tuple[Problem, str], ...] = ()

    def manifest(self) -> dict[str, Any]:
        """The plan's identity, with the facts of this machine."""
        import torch

        from kernelassay.compile import nvrtc

        compiler = find_compiler()
        return {
            "version": __version__,
            "machine": machine(),
            "torch": torch.__version__,
            "tf32": {
                "matmul": torch.backends.cuda.matmul.allow_tf32,
                "cudnn": torch.backends.cudnn.allow_tf32,
            },
            "executor": "cpu",
            "compiler": compiler.version,
            "identity": self.options.backend,
            "nvrtc": nvrtc.version() if self.options.backend == "nvrtc" else None,
            "max_inputs": self.options.max_inputs,
            "rules": [rule.id for rule in self.options.rules],
            "styles": list(self.options.styles),
            "quick": self.options.quick,
            "problems": {p.id: p.digest for p in (*self.problems, *(p for p, _ in self.refused))},
        }


def machine() -> dict[str, Any]:
    """Facts about this machine for the record."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def identity_backend(requested: str = "auto") -> str:
    """``"nvrtc"`` where it can be imported, else ``"host"``; ``requested`` overrides."""
    from kernelassay.compile import nvrtc

    if requested != "auto":
        return requested
    return "nvrtc" if nvrtc.available() else "host"


def run(
    campaign: Campaign, session: Session, reporter: Reporter, images: Path | None = None
) -> None:
    """Run a campaign to its end; what is finished already is not done again.

    Compiled code is kept in ``images``, by default with the session.
    Raises :class:`NothingToTestError` when no problem is selected. On ``KeyboardInterrupt`` the
    workers are ended and the exception goes on; finished units stay.
    """
    if not campaign.problems:
        reasons = "; ".join(f"{p.id}: {reason}" for p, reason in campaign.refused)
        raise NothingToTestError(
            f"no problem is left to run ({reasons})" if reasons else "no problem is selected",
            hint="see `kernelassay problems`",
        )
    for problem, reason in campaign.refused:
        session.write_plan(problem.id, plan.refused_plan(problem, reason))
    compiler = find_compiler()
    cache = session.images if images is None else images
    tools = Toolbox(compiler, build_runtime(compiler, cache), cache)
    queue: SimpleQueue[Problem] = SimpleQueue()
    # Chains of kernels take longest; begun last, they would leave the other lanes idle.
    for problem in sorted(campaign.problems, key=lambda p: -p.level):
        queue.put(problem)
    lanes = [
        _Lane(session, tools, campaign.options, reporter, queue)
        for _ in range(max(1, min(campaign.jobs, len(campaign.problems))))
    ]
    try:
        for lane in lanes:
            lane.start()
        while any(lane.is_alive() for lane in lanes):
            for lane in lanes:
                lane.join(0.2)
            if any(lane.failure for lane in lanes):
                break
    finally:
        for lane in lanes:
            lane.stop()
        for lane in lanes:
            lane.join(STOP_SECONDS)
    for lane in lanes:
        if lane.failure:
            raise lane.failure


class _Lane(threading.Thread):
    def __init__(
        self,
        session: Session,
        tools: Toolbox,
        options: PlanOptions,
        reporter: Reporter,
        queue: SimpleQueue[Problem],
    ) -> None:
        super().__init__(daemon=True)
        self.failure: BaseException | None = None
        self._session = session
        self._tools = tools
        self._options = options
        self._reporter = reporter
        self._queue = queue
        self._worker = Worker(tools.runtime)
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()
        self._worker.stop()

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    problem = self._queue.get_nowait()
                except Empty:
                    return
                self._problem(problem)
        except BaseException as error:
            if not self._stopped.is_set():
                self.failure = error
        finally:
            self._worker.close()

    def _task(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return run_task(function, *arguments, stopped=self._stopped)

    def _problem(self, problem: Problem) -> None:
        opened = False
        made = self._session.read_plan(problem.id)
        if made is None:
            made = plan.make_plan(
                problem,
                self._worker,
                self._tools,
                self._options,
                run=self._task,
                progress=lambda step: self._reporter.problem_step(problem.id, step),
            )
            opened = True
            if self._stopped.is_set():
                return
            self._session.write_plan(problem.id, made)
        self._reporter.problem_planned(problem.id, made)
        if not made["refused"]:
            self._cells(problem, made, opened)
        if not self._stopped.is_set():
            self._reporter.problem_done(problem.id, made)

    def _cells(self, problem: Problem, made: dict[str, Any], opened: bool) -> None:
        todo = [
            record
            for record in inputs_of(made)
            if not self._session.has_cells(problem.id, record["id"])
        ]
        if not todo:
            return
        originals, candidates = self._task(candidates_of, made, self._tools)
        if not opened:
            self._worker.open(problem)
        first = next(iter(inputs_of(made)))["id"]
        for record in todo:
            unit = self._worker.measure(
                plan.spec_of(record),
                originals,
                candidates,
                check_order=record["id"] == first,
                on_cell=lambda count: self._reporter.cells_done(problem.id, count),
            )
            if self._stopped.is_set():
                return
            _require_complete(unit, problem, record, len(candidates))
            self._session.write_cells(
                problem.id, record["id"], cell.table([*unit.fixed, *unit.cells])
            )


def _require_complete(
    unit: UnitResult, problem: Problem, record: dict[str, Any], expected: int
) -> None:
    if unit.rejected or len(unit.cells) != expected:
        raise RuntimeError(
            f"{problem.id} {record['id']}: a unit that was valid in planning yields"
            f" {len(unit.cells)} of {expected} cells ({unit.rejected or 'no reason'})"
        )
    assert unit.facts is not None
    if unit.facts.digest != record["digest"]:
        raise RuntimeError(
            f"{problem.id} {record['id']}: the input regenerated with another digest"
        )


def total_cells(plans: Sequence[dict[str, Any]]) -> int:
    """The number of cells that some plans ask for (controls and originals left out)."""
    return sum(
        sum(1 for _ in inputs_of(p))
        * (
            sum(1 for m in p["mutants"] if m["status"] == "distinct" and not m["unsupported"])
            + sum(1 for b in p["benign"] if not b["unsupported"])
        )
        for p in plans
        if not p["refused"]
    )


__all__ = ["Campaign", "Reporter", "identity_backend", "machine", "run", "total_cells"]
