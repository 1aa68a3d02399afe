"""The part of an engine that runs on a node: an actor around a station of that machine.

Needs no Ray to be imported. Methods are generators of batches of (kind, value) pairs; an empty
batch says that the actor is alive.
"""

from __future__ import annotations

import contextlib
import platform
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelassay import executors
from kernelassay.engines.likeness import Likeness, likeness
from kernelassay.engines.local import LocalEngine, LocalStation
from kernelassay.engines.station import WorkLostError
from kernelassay.errors import KernelassayError
from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.plan import PlanOptions
from kernelassay.problem import Problem
from kernelassay.session import slug, user_cache

STEP, CELL, DONE, LOST, FAILED = "step", "cell", "done", "lost", "failed"
BEAT_SECONDS = 10.0

Batch = list[tuple[str, Any]]
Tell = Callable[[tuple[str, Any]], None]


def image_cache() -> Path:
    """Where a node keeps compiled code: apart by host, as home directories may be shared."""
    return user_cache() / "nodes" / slug(platform.node() or "node")


class Node:
    """One place for work on a node."""

    def __init__(self, backend: str, cuda: CudaOptions | None) -> None:
        self._backend = backend
        self._cuda = cuda
        self._station: LocalStation | None = None
        self._problem: Problem | None = None
        self._plan: Mapping[str, Any] = {}

    def greet(self) -> Likeness:
        """Get ready, and say what this machine is."""
        tools = executors.tools(self._cuda)(image_cache())
        self._station = LocalEngine(tools).station()  # Ray shows it its GPU alone
        return likeness(self._backend, self._cuda)

    def plan(self, problem: Problem, options: PlanOptions, rules: Sequence[str]) -> Iterator[Batch]:
        """Steps, then the plan; ``rules`` are the ids of the options' rules."""
        from kernelassay.mutation import select

        station, whole = self._ready(), replace(options, rules=select(rules))
        yield from told(lambda tell: station.plan(problem, whole, lambda step: tell((STEP, step))))

    def take(self, problem: Problem, plan: Mapping[str, Any]) -> Iterator[Batch]:
        """Remember what the next units are of."""
        self._problem, self._plan = problem, plan
        yield []

    def measure(self, record: Mapping[str, Any], candidates: Sequence[str]) -> Iterator[Batch]:
        """Cells of the candidates, then what the station returns."""
        station, problem = self._ready(), self._problem
        assert problem is not None

        def work(tell: Tell) -> Any:
            return station.measure(
                problem, self._plan, record, candidates, lambda cell: tell((CELL, cell))
            )

        yield from told(work)

    def stop(self) -> None:
        """End the worker, and the task under way."""
        if self._station is not None:
            self._station.stop()

    def _ready(self) -> LocalStation:
        assert self._station is not None
        return self._station


def told(work: Callable[[Tell], Any]) -> Iterator[Batch]:
    """Do ``work`` in a thread, and give what it tells as it comes, in batches; then its result."""
    waiting: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def run() -> None:
        try:
            waiting.put((DONE, work(waiting.put)))
        except WorkLostError as loss:
            waiting.put((LOST, str(loss)))
        except KernelassayError as error:
            waiting.put((FAILED, error))
        except BaseException as error:  # anything else might not travel
            waiting.put((FAILED, RuntimeError(f"{type(error).__name__}: {error}")))

    threading.Thread(target=run, daemon=True).start()
    ended = False
    while not ended:
        batch: Batch = []
        with contextlib.suppress(queue.Empty):
            batch.append(waiting.get(timeout=BEAT_SECONDS))
            while True:
                batch.append(waiting.get_nowait())
        ended = any(kind in (DONE, LOST, FAILED) for kind, _ in batch)
        yield batch
