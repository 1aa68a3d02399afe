"""What is left to do, shared by all lanes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelassay.cell import Cell
from kernelassay.engines.gated import Gated
from kernelassay.errors import EngineError
from kernelassay.lazy import Ledger
from kernelassay.problem import Problem

WORTH_OPENING = 2
"""Units nobody has taken that make a lane open another lane's problem, which costs seconds."""
LOSSES = 4
"""How often in a row a problem or a unit may be lost without a new cell before a run gives up."""

Cost = Callable[[Problem], float]


@dataclass(slots=True, eq=False)
class Work:
    """A planned problem being measured; only :class:`Agenda` changes it.

    ``candidates`` are the ids of what runs on each input, ``waiting`` holds the records of inputs
    that no lane has taken, heaviest first, ``lost`` the units whose station went away. ``seconds``
    predicts a unit by its input's id; one without a prediction counts as a second. With a
    ``ledger`` the cells of an input say which the next one needs, so that one lane has the work to
    itself, in the order given. ``gated`` are the cells that the gate measured, by input id.
    """

    problem: Problem
    plan: dict[str, Any]
    candidates: Sequence[str]
    waiting: deque[dict[str, Any]]
    seconds: Mapping[str, float] = field(default_factory=dict)
    ledger: Ledger | None = None
    gated: Mapping[str, Gated] = field(default_factory=dict)
    lost: list[Unit] = field(default_factory=list)
    unfinished: int = field(init=False)

    def __post_init__(self) -> None:
        self.unfinished = len(self.waiting)
        if self.ledger is None:
            self.waiting = deque(sorted(self.waiting, key=self._weight, reverse=True))

    @property
    def remaining(self) -> float:
        """The predicted seconds of all units that wait."""
        return sum(map(self._weight, self.waiting))

    def _weight(self, record: Mapping[str, Any]) -> float:
        return self.seconds.get(record["id"], 1.0)

    @property
    def worth_opening(self) -> bool:
        """Whether a lane that has another problem open should help."""
        return bool(self.lost) or len(self.waiting) >= WORTH_OPENING


@dataclass(slots=True, eq=False)
class Unit:
    """A work's input that one lane has taken; ``cells`` are those measured, by whomever.

    ``losses`` counts stations that went away in a row with no cell after the ``kept`` ones.
    """

    work: Work
    record: dict[str, Any]
    cells: list[Cell] = field(default_factory=list)
    losses: int = 0
    kept: int = 0


class Agenda:
    """What is left to do, for all lanes. Its methods may be called from any thread.

    Problems are handed out by falling ``cost``; among equal ones, in the given order. ``over`` is
    set once nothing is left to begin or to finish, and with ``stopped`` when the run is stopped.
    """

    def __init__(self, problems: Iterable[Problem], cost: Cost = lambda problem: 0.0) -> None:
        self.stopped = threading.Event()
        self.over = threading.Event()
        self._changed = threading.Condition()
        self._problems = deque(sorted(problems, key=cost, reverse=True))
        self._losses: dict[str, int] = {}  # of problems in planning, by id
        self._planning = 0
        self._measuring = 0
        self._works: list[Work] = []

    def stop(self) -> None:
        """Let no lane begin anything any more, and wake those that wait."""
        with self._changed:
            self.stopped.set()
            self.over.set()
            self._changed.notify_all()

    def next(self) -> Problem | Unit | None:
        """A problem, which the lane must :meth:`offer` or :meth:`drop`; else a unit; else the end.

        Waits while other lanes plan problems that may have units.
        """
        with self._changed:
            while not self.stopped.is_set():
                if self._problems:
                    self._planning += 1
                    return self._problems.popleft()
                works = [work for work in self._works if work.worth_opening]
                if works:
                    return self._take(max(works, key=lambda w: (len(w.lost), w.remaining)))
                if not self._planning:
                    return None
                self._changed.wait()
        return None

    def offer(self, work: Work) -> Unit:
        """Show the units of a problem that is planned now to all lanes; returns the first.

        A work with a ledger is shown only once its lane has put it back.
        """
        with self._changed:
            self._works.append(work)
            self._planning -= 1
            self._measuring += 1
            self._changed.notify_all()
            return self._take(work)

    def drop(self) -> None:
        """Tell that a problem has nothing to measure."""
        with self._changed:
            self._planning -= 1
            self._settle()

    def another(self, work: Work) -> Unit | None:
        """One more unit of a work, for a lane that has its problem open."""
        with self._changed:
            left = work.lost or work.waiting
            return self._take(work) if left and not self.stopped.is_set() else None

    def finish(self, unit: Unit) -> bool:
        """Tell that a unit is stored; returns whether it was the last one of its work."""
        with self._changed:
            unit.work.unfinished -= 1
            if unit.work.unfinished:
                return False
            self._measuring -= 1
            self._settle()
            return True

    def put_back(self, taken: Problem | Unit, reason: str) -> None:
        """Let another station have what one went away with.

        Raises :class:`EngineError` where that has happened too often without any progress.
        """
        with self._changed:
            if isinstance(taken, Unit):
                taken.losses = 1 if len(taken.cells) > taken.kept else taken.losses + 1
                taken.kept = len(taken.cells)
                _require_hope(taken.losses, _name(taken), reason)
                taken.work.lost.append(taken)
                if taken.work not in self._works:
                    self._works.append(taken.work)
            else:
                self._losses[taken.id] = self._losses.get(taken.id, 0) + 1
                _require_hope(self._losses[taken.id], f"{taken.id} in planning", reason)
                self._problems.appendleft(taken)
                self._planning -= 1
            self._changed.notify_all()

    def _take(self, work: Work) -> Unit:
        unit = work.lost.pop() if work.lost else Unit(work, work.waiting.popleft())
        if work in self._works and (work.ledger or not (work.lost or work.waiting)):
            self._works.remove(work)
        return unit

    def _settle(self) -> None:
        if not self._problems and not self._planning and not self._measuring:
            self.over.set()
        self._changed.notify_all()


def _name(unit: Unit) -> str:
    return f"{unit.work.problem.id} on input {unit.record['id']}"


def _require_hope(losses: int, name: str, reason: str) -> None:
    if losses >= LOSSES:
        raise EngineError(
            f"lost {losses} times in a row without a new result: {reason}",
            where=name,
            hint="does it need more memory than a node has, or does a device fail (`nvidia-smi`)?"
            " what is finished is kept, and the same command resumes",
        )
