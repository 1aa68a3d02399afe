"""What a session cost, part by part, held against what the cost model predicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from kernelassay.cell import IMPLIED
from kernelassay.cost import CANDIDATE, ORIGINAL, PREPARE, Machine, Prediction, call_and_style
from kernelassay.cost_fit import SHORTEST, fit, spearman
from kernelassay.errors import NothingToTestError, SessionError, unknown_name
from kernelassay.joined import JoinedSessions
from kernelassay.lazy import LAZY
from kernelassay.machines import MACHINES
from kernelassay.matrix import measured
from kernelassay.session import Session, inputs_of
from kernelassay.timing import PLAN, PlanTiming, Replacement, Stint, UnitTiming

PLANNING = (
    "tracing",
    "compiling the correct kernels",
    "checking inputs",
    "mutating and compiling",
)
GATE, BUILDING = PLANNING[2:]
ADMITTING = "correct kernels on inputs"
"""What the gate measures, which the planner's stage of checking inputs contains."""

PREPARING, ORIGINALS, CANDIDATES, REPLACING = (
    "preparing inputs",
    "originals and controls",
    "candidates",
    "replacing workers",
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Seconds of one part of a run; ``predicted`` is None for a part without a model."""

    measured: float
    predicted: float | None


@dataclass(frozen=True, slots=True)
class Compared:
    """How well one kind is predicted: ``count`` samples, total seconds, and what each is off by.

    ``median`` and ``p90`` are those of ``abs(log2(predicted / measured))``: 1 is a factor of two.
    """

    count: int
    measured: float
    predicted: float
    median: float
    p90: float


@dataclass(frozen=True, slots=True)
class Lost:
    """Workers lost for one reason: seconds to replace them, and wasted before they were lost."""

    count: int
    seconds: float
    wasted: float


@dataclass(frozen=True, slots=True)
class Extent:
    """How much was measured: ``mutants``, the cells run, and those that others ``implied``."""

    mutants: int
    cells: int
    implied: int


@dataclass(frozen=True, slots=True)
class CostReport:
    """The cost of the sessions of a campaign.

    ``stages`` are those of planning, what the gate measured taken out of the third and told after
    them, and then those of the units; ``kinds`` by ``<template>/<style>`` or kind.
    ``rank_correlation`` is Spearman's between predicted and measured seconds of the ``units``,
    which is what an order needs; None for fewer than two. ``stints`` are the runs, none where none
    was noted.
    """

    session: str
    machine: Machine
    stints: Sequence[Stint]
    extent: Extent
    problems: int
    units: int
    stages: Mapping[str, Stage]
    kinds: Mapping[str, Compared]
    rank_correlation: float | None
    replacements: Mapping[str, Lost]

    def growth(self, mutants: int) -> float:
        """How many times as long it would take with so many mutants of the same problems.

        Building and running mutants, and replacing workers, takes longer in proportion; tracing,
        the correct kernels and preparing inputs does not. What checking inputs took beyond its runs
        is waiting for the device, which grows as the rest does.
        """
        times = mutants / self.extent.mutants if self.extent.mutants else 1.0
        with_mutants = sum(self.stages[n].measured for n in (BUILDING, CANDIDATES, REPLACING))
        whole = sum(stage.measured for name, stage in self.stages.items() if name != GATE)
        return 1.0 + (times - 1.0) * with_mutants / whole if whole else 1.0

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "session": self.session,
            "machine": self.machine.to_json(),
            "stints": [stint.to_json() for stint in self.stints],
            "extent": asdict(self.extent),
            "problems": self.problems,
            "units": self.units,
            "stages": {name: asdict(stage) for name, stage in self.stages.items()},
            "kinds": {name: asdict(kind) for name, kind in self.kinds.items()},
            "rank_correlation": self.rank_correlation,
            "replacements": {why: asdict(lost) for why, lost in self.replacements.items()},
        }


@dataclass(slots=True)
class Timings:
    """All timings of a session: of each problem's planning, and of its units.

    A unit that nothing was measured for, since the gate's cells were enough, is none of them. With
    ``lazy`` cells the gate has measured nearly all, mutants included.
    """

    lazy: bool
    plans: list[PlanTiming] = field(default_factory=list)
    measured: list[UnitTiming] = field(default_factory=list)

    @property
    def gated(self) -> list[UnitTiming]:
        """The units of the gates."""
        return [unit for plan in self.plans for unit in plan.units.values()]

    @property
    def admitting(self) -> list[UnitTiming]:
        """Those that served to admit problems and inputs alone."""
        return [] if self.lazy else self.gated

    @property
    def units(self) -> list[UnitTiming]:
        """Those that served to measure mutants."""
        return [*self.gated, *self.measured] if self.lazy else self.measured

    @property
    def all_units(self) -> list[UnitTiming]:
        """All of them."""
        return [*self.gated, *self.measured]


def read_timings(*sessions: Session) -> Timings:
    """Of sessions of one campaign. Raises :class:`NothingToTestError` if they hold none."""
    found = Timings(sessions[0].manifest.get("cells") == LAZY)
    for session in sessions:
        _add(found, session)
    if not found.plans and not found.measured:
        raise NothingToTestError(
            "the session holds no timings",
            where=", ".join(session.name for session in sessions),
            hint="a run that measures something stores them; this session is older, or empty",
        )
    return found


def _add(found: Timings, session: Session) -> None:
    for plan in session.plans():
        problem = plan["problem"]["id"]
        names = [PLAN, *(record["id"] for record in inputs_of(plan))]
        for name in names:
            stored = session.read_timing(problem, name)
            if stored is None:
                continue
            try:
                if name == PLAN:
                    found.plans.append(PlanTiming.from_json(stored))
                elif (unit := UnitTiming.from_json(stored)).timing.seconds:
                    found.measured.append(unit)
            except (KeyError, TypeError, AttributeError) as error:
                raise SessionError(
                    f"damaged timing of {problem} {name}: {error!r}",
                    where=session.name,
                    hint="delete its file in timings/: no result depends on it",
                ) from error


def machine_of(session: Session) -> Machine:
    """The coefficients that ship for the session's executor."""
    executor = str(session.manifest.get("executor"))
    if executor not in MACHINES:
        raise unknown_name("executor", executor, MACHINES)
    return MACHINES[executor]


def fitted(*sessions: Session) -> Machine:
    """Coefficients fitted on the timings of sessions of one executor."""
    units = read_timings(*sessions).all_units
    names = ", ".join(session.name for session in sessions)
    return fit(units, machine_of(sessions[0]), f"fitted on {names}, {len(units)} units")


def _extent(session: JoinedSessions) -> Extent:
    mutants = cells = implied = 0
    for plan in session.finished_plans():
        mutants += sum(map(measured, plan["mutants"]))
        for record in inputs_of(plan):
            outcomes = session.read_cells(plan["problem"]["id"], record["id"]).column("outcome")
            left_out = outcomes.to_pylist().count(IMPLIED)
            implied += left_out
            cells += len(outcomes) - left_out
    return Extent(mutants, cells, implied)


def cost_report(sessions: Sequence[Session], machine: Machine) -> CostReport:
    """What the sessions of a campaign cost, against what ``machine`` predicts.

    Raises as :class:`JoinedSessions`, and :class:`NothingToTestError` if they hold no timings.
    """
    joined = JoinedSessions(sessions)
    timings = read_timings(*sessions)
    known = [unit for unit in timings.units if unit.work is not None]
    return CostReport(
        session=joined.name,
        machine=machine,
        stints=tuple(stint for session in sessions for stint in session.stints()),
        extent=_extent(joined),
        problems=len(timings.plans),
        units=len(timings.units),
        stages=_stages(timings, machine),
        kinds=_kinds(timings.all_units, machine),
        rank_correlation=spearman(
            [_prediction(unit, machine).seconds for unit in known],
            [unit.timing.seconds - _lost(unit.timing.replacements) for unit in known],
        ),
        replacements=_replacements(timings.all_units),
    )


def _prediction(unit: UnitTiming, machine: Machine) -> Prediction:
    """Of what a unit did: an input that was kept from before was not prepared."""
    if unit.work is None:
        return Prediction(0.0, 0.0, {})
    whole = machine.unit(unit.work, unit.timing.kernels, unit.timing.runs)
    return whole if unit.timing.prepare else replace(whole, prepare=0.0)


def _lost(replacements: Iterable[Replacement]) -> float:
    return sum(one.seconds + one.wasted for one in replacements)


def _stages(timings: Timings, machine: Machine) -> dict[str, Stage]:
    planning: dict[str, float] = dict.fromkeys(PLANNING, 0.0)
    for plan in timings.plans:
        for name, seconds in plan.stages.items():
            planning[name] = planning.get(name, 0.0) + seconds
    gated = sum(unit.timing.seconds for unit in timings.gated)
    planning[GATE] -= gated
    found = {name: Stage(seconds, None) for name, seconds in planning.items()}
    found[ADMITTING] = Stage(
        sum(unit.timing.seconds for unit in timings.admitting),
        sum(_prediction(unit, machine).seconds for unit in timings.admitting),
    )
    parts = [_prediction(unit, machine) for unit in timings.units]
    measured = [unit.timing for unit in timings.units]
    found[PREPARING] = Stage(sum(t.prepare for t in measured), sum(p.prepare for p in parts))
    found[ORIGINALS] = Stage(sum(t.fixed for t in measured), sum(p.fixed for p in parts))
    found[CANDIDATES] = Stage(
        sum(sum(t.candidates.values()) for t in measured),
        sum(sum(p.candidates.values()) for p in parts),
    )
    found[REPLACING] = Stage(sum(_lost(t.replacements) for t in measured), None)
    return found


def _kinds(units: Iterable[UnitTiming], machine: Machine) -> dict[str, Compared]:
    pairs: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for unit in units:
        work, timing = unit.work, unit.timing
        if work is None:
            continue
        for original, seconds in timing.kernels.items():
            call, style = call_and_style(original)
            predicted = machine.kernel(original, work)
            pairs[f"{work.calls[call].template}/{style}"].append((seconds, predicted, 1.0))
        whole = _prediction(unit, machine)
        if timing.prepare:
            pairs[PREPARE].append((timing.prepare, whole.prepare, 1.0))
        if timing.kernels:
            pairs[ORIGINAL].append((timing.fixed, whole.fixed, 1.0))
        for original, runs in timing.runs.items():
            predicted = machine.run(original, work)
            pairs[CANDIDATE].append((timing.candidates[original] / runs, predicted, runs))
    last = (PREPARE, ORIGINAL, CANDIDATE)
    order = sorted(pairs, key=lambda key: (key in last and last.index(key) + 1, key))
    return {key: _compared(np.array(pairs[key])) for key in order}


def _compared(rows: Any) -> Compared:
    """From rows of measured seconds, predicted seconds, and how often that was."""
    measured, predicted, times = np.maximum(rows, SHORTEST).T
    off = np.abs(np.log2(predicted / measured))
    return Compared(
        len(rows),
        float((measured * times).sum()),
        float((predicted * times).sum()),
        float(np.median(off)),
        float(np.quantile(off, 0.9)),
    )


def _replacements(units: Iterable[UnitTiming]) -> dict[str, Lost]:
    found: dict[str, list[Replacement]] = defaultdict(list)
    for unit in units:
        for one in unit.timing.replacements:
            found[one.why].append(one)
    return {
        why: Lost(len(all_), sum(one.seconds for one in all_), sum(one.wasted for one in all_))
        for why, all_ in sorted(found.items())
    }
