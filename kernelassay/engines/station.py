"""What a lane asks of a machine, wherever that is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernelassay.cell import Cell
from kernelassay.plan import PlanOptions
from kernelassay.problem import Problem
from kernelassay.timing import PlanTiming, UnitTiming

OnStep = Callable[[str], None]
OnCell = Callable[[Cell], None]


class WorkLostError(Exception):
    """A station went away or failed with what it had in hand, which says nothing about that."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A problem's plan, what making it took, and all cells that the gate measured meanwhile."""

    plan: dict[str, Any]
    timing: PlanTiming
    gate: Sequence[Cell] = ()


@dataclass(frozen=True, slots=True)
class Fixed:
    """The cells of a unit's originals and controls, and what the unit took."""

    cells: Sequence[Cell]
    timing: UnitTiming


class Station(Protocol):
    """A place that plans problems and measures units, one thing at a time, for one lane."""

    def ready(self, over: threading.Event) -> bool:
        """Wait until work can be given; false if ``over`` is set before that."""

    def plan(self, problem: Problem, options: PlanOptions, on_step: OnStep) -> Planned:
        """The plan of a problem (:func:`kernelassay.plan.make_plan`).

        Raises :class:`WorkLostError`.
        """

    def measure(
        self,
        problem: Problem,
        plan: Mapping[str, Any],
        record: Mapping[str, Any],
        candidates: Sequence[str],
        on_cell: OnCell,
    ) -> Fixed:
        """Run candidates of a plan, named by id, on the input of one of its records.

        Their cells go to ``on_cell``, in order; the cells of originals and controls are returned.
        Raises :class:`WorkLostError`; the cells told before that count.
        """

    def stop(self) -> None:
        """Break off what is under way; called from another thread, and nothing follows it."""

    def close(self) -> None:
        """End the processes behind it."""


class Engine(Protocol):
    """Makes stations, one for each lane."""

    def station(self) -> Station:
        """A station of its own; it need not take anything up before :meth:`Station.ready`."""
