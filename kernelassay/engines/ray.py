"""Work on the nodes of a Ray cluster: a station is an actor that owns a station of its node.

Nodes share no files: problems travel as text, plans and cells come back as values, and the lanes of
the coordinator write the session. An actor that dies, with its node or alone, is replaced by a
fresh one wherever there is room; what it had in hand goes back to the agenda.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

from kernelassay.engines.likeness import Likeness, differences, likeness
from kernelassay.engines.node import CELL, FAILED, LOST, STEP, Node
from kernelassay.engines.station import Fixed, OnCell, OnStep, Planned, WorkLostError
from kernelassay.errors import EngineError, KernelassayError, ToolchainError, UsageError
from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.executors import LANES_PER_DEVICE
from kernelassay.plan import PlanOptions
from kernelassay.problem import Problem

LOCAL = "local"
POLL_SECONDS = 0.5
SILENCE_SECONDS = 300.0
"""An actor tells every few seconds that it is alive; one that does not for so long is replaced."""
PATIENCE_SECONDS = 600.0
"""How long a run waits for room on any node while it has none."""
SURVEY_SECONDS = 300.0
STARTS = 5
"""How often in a row an actor may die before it has said what its node is."""


class RayEngine:
    """A connection to a Ray cluster, used as a context manager; makes stations on its nodes.

    ``address`` is that of a cluster, by default the environment's ``RAY_ADDRESS``, else a fresh one
    on this machine with ``cpus`` cores. A station takes one core and, with the options of the
    CUDA executor, a share of a GPU. Nodes that would not yield this machine's bytes are refused
    (:class:`EngineError`); ``backend`` is what tells equivalent mutants.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        backend: str,
        cpus: int | None = None,
        cuda: CudaOptions | None = None,
    ) -> None:
        self.ray = _import_ray()
        self.address = address or os.environ.get("RAY_ADDRESS") or LOCAL
        if self.address.startswith("ray://"):
            raise UsageError(
                "Ray's client protocol is not supported",
                where=self.address,
                hint="run on a node of the cluster and name it host:port, or use `ray job submit`",
            )
        self.backend = backend
        self.cuda = cuda
        self.needs = {"CPU": 1.0} | ({"GPU": 1 / LANES_PER_DEVICE} if cuda else {})
        self.own = likeness(backend, cuda)
        self.nodes: list[dict[str, Any]] = []
        self._cpus = cpus
        self._connected = False
        self._lock = threading.Lock()
        self._alive: set[RayStation] = set()
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        if not self.ray.is_initialized():
            self._connect()
        try:
            self.nodes = self._survey()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connected:
            self.ray.shutdown()
            self._connected = False

    @property
    def places(self) -> int:
        """How many stations the cluster has room for now, at least one."""
        found = self.ray.cluster_resources()
        return max(1, int(min(found.get(name, 0) / need for name, need in self.needs.items())))

    def station(self) -> RayStation:
        """A station that takes a place on a node when a lane asks whether it is ready."""
        return RayStation(self)

    def actor(self) -> Any:
        """A fresh actor, somewhere; it may have to wait for room."""
        kind = self.ray.remote(Node)
        # A second thread, so that an actor can be told to stop while it works.
        options = {"num_cpus": 1, "num_gpus": self.needs.get("GPU", 0), "max_concurrency": 2}
        return kind.options(**options, max_restarts=0).remote(self.backend, self.cuda)

    def require_alike(self, found: Likeness) -> None:
        """Raises :class:`EngineError` for a node whose results would not be this machine's."""
        wrong = differences(self.own, found)
        if wrong:
            raise EngineError(
                f"the node's results could differ from this machine's: {'; '.join(wrong)}",
                where=f"node {found.host}",
                hint="use the same versions on all nodes, or a cluster of equal nodes",
            )

    def note(self, station: RayStation, *, alive: bool) -> None:
        """Remember which stations have an actor."""
        with self._lock:
            if alive:
                self._alive.add(station)
            elif station in self._alive:
                self._alive.discard(station)
                self._since = time.monotonic()

    def require_room(self) -> None:
        """Raises :class:`EngineError` after a long time without room for any actor."""
        with self._lock:
            waited = 0.0 if self._alive else time.monotonic() - self._since
        if waited > PATIENCE_SECONDS:
            raise EngineError(
                f"no node has had room for {waited:.0f} s (wanted: {_text(self.needs)})",
                where=f"Ray cluster {self.address}",
                hint="`ray status` shows what is used; what is finished is kept, and the same"
                " command resumes",
            )

    def _connect(self) -> None:
        options: dict[str, Any] = {
            "address": self.address,
            "log_to_driver": False,
            "logging_level": "error",
            "runtime_env": {
                "py_modules": [str(Path(__file__).parents[1])],
                "excludes": ["__pycache__"],
            },
        }
        if self.address == LOCAL:
            options |= {"num_cpus": self._cpus, "include_dashboard": False}
        try:
            self.ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise EngineError(
                f"no connection to Ray: {_first_line(error)}",
                where=self.address,
                hint="is the cluster up, with this version of Ray and of Python?",
            ) from error
        self._connected = True

    def _survey(self) -> list[dict[str, Any]]:
        """Ask every node that may get work what it is, all at once."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        able = [
            node["NodeID"]
            for node in self.ray.nodes()
            if node["Alive"]
            and all(node["Resources"].get(name, 0) >= need for name, need in self.needs.items())
        ]
        if not able:
            raise EngineError(
                f"no node offers {_text(self.needs)}",
                where=f"Ray cluster {self.address}",
                hint="start one with `ray start`",
            )
        # A task without a share of the GPU would not see one.
        ask = self.ray.remote(num_cpus=0, num_gpus=self.needs.get("GPU", 0))(likeness)
        pinned = [NodeAffinitySchedulingStrategy(node, soft=False) for node in able]
        asked = [ask.options(scheduling_strategy=p).remote(self.backend, self.cuda) for p in pinned]
        found: list[Likeness] = []
        for reference in asked:
            try:
                found.append(self.ray.get(reference, timeout=SURVEY_SECONDS))
            except self.ray.exceptions.RayTaskError as error:
                cause = error.cause
                if isinstance(cause, KernelassayError):
                    raise cause from error
                raise EngineError(f"a node cannot say what it is: {cause}") from error
            except self.ray.exceptions.RuntimeEnvSetupError as error:
                raise EngineError(f"a node cannot be set up: {error}") from error
            except self.ray.exceptions.RayError:
                continue  # a node that has just gone is no reason to stop
        for one in found:
            self.require_alike(one)
        return [one.machine for one in found]


class RayStation:
    """An actor, and the next one when that dies."""

    def __init__(self, engine: RayEngine) -> None:
        self._engine = engine
        self._actor: Any = None
        self._greeted = False
        self._given: Mapping[str, Any] | None = None  # the plan that the actor has
        self._lock = threading.Lock()
        self._stopped = False

    def ready(self, over: threading.Event) -> bool:
        """Wait for an actor. Raises :class:`EngineError` if its node is unfit, or none comes."""
        starts = 0
        greeting: Any = None
        while not over.is_set():
            if self._greeted:
                return True
            try:
                if greeting is None:
                    greeting = self._begin()
                if self._engine.ray.wait([greeting], timeout=POLL_SECONDS)[0]:
                    self._engine.require_alike(self._engine.ray.get(greeting))
                    self._greeted = True
                    self._engine.note(self, alive=True)
            except self._engine.ray.exceptions.RayTaskError as error:
                raise _cause(error) from error
            except self._engine.ray.exceptions.RayError as error:
                starts += 1
                greeting = None
                self._drop()
                if starts == STARTS:
                    raise EngineError(f"actors die before they can work: {error}") from error
            self._engine.require_room()
        return False

    def plan(self, problem: Problem, options: PlanOptions, on_step: OnStep) -> Planned:
        """As in :class:`Station`; raises :class:`UsageError` for inputs in files from here."""
        if options.given:
            raise UsageError("inputs handed over as files do not travel", where=problem.id)
        # Rules hold functions; their ids name them on the node.
        rules = tuple(rule.id for rule in options.rules)
        made: Planned | None = None
        for kind, value in self._follow("plan", problem, replace(options, rules=()), rules):
            if kind == STEP:
                on_step(value)
            else:
                made = value
        assert made is not None
        return made

    def measure(
        self,
        problem: Problem,
        plan: Mapping[str, Any],
        record: Mapping[str, Any],
        candidates: Sequence[str],
        on_cell: OnCell,
    ) -> Fixed:
        """As in :class:`Station`."""
        if self._given is not plan:
            for _ in self._follow("take", problem, plan):
                pass
            self._given = plan
        fixed: Fixed | None = None
        for kind, value in self._follow("measure", record, list(candidates)):
            if kind == CELL:
                on_cell(value)
            else:
                fixed = value
        assert fixed is not None
        return fixed

    def stop(self) -> None:
        """Break off what the actor does, and end it."""
        with self._lock:
            self._stopped = True
        self.close()

    def close(self) -> None:
        """End the actor, its worker first: a worker whose actor is killed ends its candidate."""
        actor = self._actor
        if actor is not None:
            with contextlib.suppress(Exception):
                self._engine.ray.wait([actor.stop.remote()], timeout=2)
            self._drop()

    def _begin(self) -> Any:
        with self._lock:
            if self._stopped:
                raise WorkLostError("the run was stopped")
            self._actor = self._engine.actor()
        return self._actor.greet.remote()

    def _drop(self) -> None:
        actor, self._actor = self._actor, None
        self._greeted, self._given = False, None
        self._engine.note(self, alive=False)
        if actor is not None:
            with contextlib.suppress(Exception):  # it may be gone, or the cluster with it
                self._engine.ray.kill(actor)

    def _follow(self, method: str, *arguments: Any) -> Iterator[tuple[str, Any]]:
        """What a method of the actor tells, as it comes."""
        ray = self._engine.ray
        actor = self._actor
        try:
            if actor is None:
                raise WorkLostError("it has no actor")
            stream = getattr(actor, method).options(num_returns="streaming").remote(*arguments)
            while True:
                if not ray.wait([stream], timeout=SILENCE_SECONDS)[0]:
                    raise WorkLostError(f"no sign of life for {SILENCE_SECONDS:.0f} s")
                try:
                    batch = ray.get(next(stream))
                except StopIteration:
                    return
                for kind, value in batch:
                    if kind == LOST:
                        raise WorkLostError(value)
                    if kind == FAILED:
                        raise value
                    yield kind, value
        except WorkLostError:
            self._drop()
            raise
        except ray.exceptions.RayTaskError as error:
            raise _cause(error) from error
        except ray.exceptions.RayError as error:
            self._drop()
            raise WorkLostError(_first_line(error)) from error


def _cause(error: Any) -> Exception:
    """What an actor raised. Only what is meant for users keeps its kind."""
    cause = error.cause
    return cause if isinstance(cause, KernelassayError) else RuntimeError(str(error))


def _import_ray() -> ModuleType:
    # Set before the import, which reads it: nothing is to be reported from a run.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ToolchainError(
            f"Ray cannot be imported: {error}", hint="pip install 'kernelassay[ray]'"
        ) from error
    return ray


def _text(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items())


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
