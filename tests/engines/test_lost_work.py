"""Stations that go away lose nothing that was measured, and never decide anything."""

import itertools
import threading
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay.cell import OK, Cell
from kernelassay.engines import Agenda, Lane, WorkLostError
from kernelassay.engines.agenda import LOSSES
from kernelassay.engines.station import Fixed, Planned
from kernelassay.errors import EngineError
from kernelassay.plan import PlanOptions
from kernelassay.problem import Problem
from kernelassay.timing import PlanTiming, Timing, UnitTiming
from tests.test_campaign import Silent

INPUTS, MUTANTS = 3, 4
VARIANTS = ("a", "b")
ORIGINAL = "original/k00/plain"


def problem(name, level=0):
    return Problem(name, level, "file", name, "", ())


def plan_of(name):
    return {
        "problem": {"id": name},
        "refused": "",
        "inputs": [{"id": f"i{n}", "valid": True} for n in range(INPUTS)],
        "calls": [{"id": "k00", "styles": ["plain"], "not_admitted": {}}],
        "benign": [
            {"id": f"benign/k00/{name}", "call": "k00", "style": "plain", "unsupported": ""}
            for name in VARIANTS
        ],
        "mutants": [
            {
                "id": f"{name}-m{n}",
                "status": "distinct",
                "unsupported": "",
                "call": "k00",
                "style": "plain",
            }
            for n in range(MUTANTS)
        ],
    }


def cell(candidate, record):
    nothing = {"seen": None, "poisoned": None, "exact": None}
    return Cell(candidate, record["id"], OK, "", False, False, 0, (), "", **nothing)


class Store:
    """A session in memory that allows every file once."""

    def __init__(self):
        self.manifest = {"executor": "cpu"}
        self.plans, self.cells, self.timings, self.gates = {}, {}, {}, {}

    def read_gate(self, name):
        return self.gates.get(name)

    def write_gate(self, name, table):
        assert name not in self.plans  # who resumes finds it with the plan
        self.gates[name] = table

    def read_timing(self, name, record):
        return self.timings.get((name, record))

    def write_timing(self, name, record, timing):
        self.timings[name, record] = timing

    def read_plan(self, name):
        return self.plans.get(name)

    def write_plan(self, name, plan):
        assert name not in self.plans
        self.plans[name] = plan

    def has_cells(self, name, record):
        return (name, record) in self.cells

    def read_cells(self, name, record):
        raise AssertionError("rows are not read back")

    def write_cells(self, name, record, table):
        assert (name, record) not in self.cells
        self.cells[name, record] = table["candidate"].to_pylist()


class Fragile:
    """A station that is lost at the moments that ``falls`` tells: one answer per step."""

    def __init__(self, falls):
        self.falls = falls
        self.measured = []

    def ready(self, over):
        return not over.is_set()

    def plan(self, problem, options, on_step):
        self._step()
        made = plan_of(problem.id)
        names = [ORIGINAL, *(record["id"] for record in made["benign"])]
        gate = [cell(name, record) for record in made["inputs"] for name in names]
        return Planned(made, PlanTiming({}, {}), gate)

    def measure(self, problem, plan, record, candidates, on_cell):
        for name in candidates:
            self._step()
            self.measured.append((record["id"], name))
            on_cell(cell(name, record))
        self._step()
        return Fixed([cell(ORIGINAL, record)], UnitTiming(Timing(), None))

    def stop(self):
        pass

    def close(self):
        pass

    def _step(self):
        if next(self.falls, False):
            raise WorkLostError("it went away")


def lanes_over(problems, stations, store=None, reporter=None):
    agenda = Agenda(problems)
    store = store or Store()
    options = PlanOptions((), True, "host")
    lanes = [Lane(store, station, options, reporter or Silent(), agenda) for station in stations]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join(60)
        assert not lane.is_alive()
    return agenda, store, [lane.failure for lane in lanes]


def falls(most):
    """With two steps or more between losses: something is measured in between."""
    return st.lists(st.integers(2, 6), max_size=most).map(
        lambda gaps: [fall for gap in gaps for fall in (*([False] * gap), True)]
    )


# Several stations may lose one unit in a row, so that they are given fewer losses than that allows.
SCHEDULES = st.one_of(st.tuples(falls(8)), st.tuples(*[falls(1)] * (LOSSES - 1)))


@settings(max_examples=40, deadline=None)
@given(SCHEDULES, st.integers(1, 3))
def test_whenever_stations_are_lost_every_cell_is_stored_once(schedules, count):
    problems = [problem(f"p{n}") for n in range(count)]
    stations = [Fragile(iter(schedule)) for schedule in schedules]
    agenda, store, failures = lanes_over(problems, stations)
    assert failures == [None] * len(stations)
    assert agenda.over.is_set()
    assert store.cells == {
        (p.id, f"i{n}"): sorted(
            [
                ORIGINAL,
                *(f"benign/k00/{name}" for name in VARIANTS),
                *(f"{p.id}-m{m}" for m in range(MUTANTS)),
            ]
        )
        for p in problems
        for n in range(INPUTS)
    }
    measured = [cell for station in stations for cell in station.measured]
    mutants = [cell for cell in measured if not cell[1].startswith("benign/")]
    assert len(mutants) == len(set(mutants))  # none twice, not even after a loss
    # What the gate measured is measured again on the first input alone.
    again = sorted(cell for cell in measured if cell[1].startswith("benign/"))
    assert again == sorted(("i0", f"benign/k00/{name}") for name in VARIANTS for _ in problems)


def test_a_unit_that_gets_nowhere_is_given_up_by_name():
    station = Fragile(itertools.chain([False] * 3, itertools.repeat(True)))  # plan, two cells
    _, store, (failure,) = lanes_over([problem("p")], [station])
    assert isinstance(failure, EngineError)
    assert failure.where == "p on input i0"
    assert f"lost {LOSSES} times" in failure.what
    assert "it went away" in failure.what
    assert not store.cells


def test_planning_that_gets_nowhere_is_given_up_by_name():
    _, store, (failure,) = lanes_over([problem("p")], [Fragile(itertools.repeat(True))])
    assert isinstance(failure, EngineError)
    assert failure.where == "p in planning"
    assert not store.plans


def test_a_unit_that_gets_on_by_one_cell_at_a_time_is_not_given_up():
    station = Fragile(itertools.chain([False], itertools.cycle([False, True])))
    _, store, failures = lanes_over([problem("p")], [station])
    assert failures == [None]
    assert len(store.cells) == INPUTS


def test_what_one_station_loses_in_planning_another_takes():
    """A lane that waits for the other's plan gets the problem when that is lost."""
    lost, taken = threading.Event(), threading.Event()

    class Absent(Fragile):
        def plan(self, problem, options, on_step):
            taken.set()
            raise WorkLostError("its node was removed")

        def ready(self, over):
            if taken.is_set():
                lost.set()
                return not over.wait(60)  # no other node comes
            return True

    class Late(Fragile):
        def ready(self, over):
            assert taken.wait(60)
            return super().ready(over)

    stations = [Absent(iter(())), Late(iter(()))]
    _, store, failures = lanes_over([problem("p")], stations)
    assert failures == [None, None]
    assert lost.is_set()
    assert len(store.cells) == INPUTS


def test_cells_are_counted_once_however_often_a_unit_is_taken():
    counted = []

    class Counting(Silent):
        def cells_done(self, problem, count):
            counted.append(count)

    station = Fragile(iter([False, False, False, True, False, True]))
    lanes_over([problem("p")], [station], reporter=Counting())
    assert sum(counted) == INPUTS * (MUTANTS + len(VARIANTS))


def test_the_costliest_problems_are_begun_first_and_equal_ones_in_the_given_order():
    costs = {"a": 1.0, "b": 3.0, "c": 1.0, "d": 2.0}
    agenda = Agenda([problem(name) for name in costs], lambda p: costs[p.id])
    assert [agenda.next().id for _ in costs] == ["b", "d", "a", "c"]


def test_importing_the_package_imports_no_ray():
    import subprocess
    import sys

    code = "import sys, kernelassay.campaign, kernelassay.cli.run, kernelassay.engines.ray;" + (
        "sys.exit('ray' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
