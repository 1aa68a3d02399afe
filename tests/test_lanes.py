"""Lanes share a problem, and what they measure does not depend on how many they are."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelassay import campaign as campaigns
from kernelassay import plan
from kernelassay.cli.run import ProgressLines
from kernelassay.engines import Agenda, Lane, Unit, Work
from kernelassay.execute.worker import Worker
from kernelassay.lazy import Ledger
from kernelassay.problem import read_problem
from kernelassay.session import Session, inputs_of
from tests.test_campaign import GOOD, Silent, campaign, measure

NAME = "suite/softmax_rows"
LANES = 3
SECONDS = 240  # far more than anything here takes


class Recorded(Silent):
    """What a campaign reports, in order."""

    def __init__(self):
        self.events = []

    def problem_planned(self, problem, plan):
        self.events.append("planned")

    def cells_done(self, problem, count):
        self.events.extend(["cell"] * count)

    def problem_done(self, problem, plan):
        self.events.append("done")


def lanes_alive():
    return [thread for thread in threading.enumerate() if isinstance(thread, Lane)]


def work(name, units):
    return Work(name, {}, (), deque({"id": f"{name}-{n}"} for n in range(units)))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """One problem in one lane: its session, its digest, and its images for others to use."""
    folder = tmp_path_factory.mktemp("alone")
    images = folder / "images"
    return folder / "s", measure(folder / "s", images=images, names=(NAME,)), images


@pytest.fixture
def helped(alone, tmp_path):
    """Measures the same problem in several lanes."""
    return lambda reporter=None: measure(
        tmp_path / "s", reporter, images=alone[2], names=(NAME,), jobs=LANES
    )


def test_all_lanes_measure_one_problem_at_a_time_and_the_digest_is_that_of_one_lane(
    alone, helped, monkeypatch
):
    writers = Counter()
    together = threading.Barrier(LANES, timeout=SECONDS)
    original = Session.write_cells

    def write_cells(self, problem, record, cells):
        lane = threading.current_thread()
        writers[lane] += 1
        if writers[lane] == 1:
            together.wait()  # breaks, and the campaign with it, if a lane does not help
        original(self, problem, record, cells)

    monkeypatch.setattr(Session, "write_cells", write_cells)
    assert helped() == alone[1]
    assert len(writers) == LANES
    (plan,) = Session.open(alone[0]).plans()
    assert sum(writers.values()) == len(list(inputs_of(plan)))


def test_a_problem_is_done_once_and_after_its_last_cell(alone, helped):
    reporter = Recorded()
    helped(reporter)
    (plan,) = Session.open(alone[0]).plans()
    cells = campaigns.total_cells([plan])
    assert reporter.events == ["planned", *["cell"] * cells, "done"]


def test_a_helping_worker_killed_at_any_moment_changes_nothing(alone, helped, monkeypatch):
    planners, received, killed = set(), Counter(), Counter()
    battery, receive = Worker.battery, Worker._receive

    def battery_of_a_planner(self, size, small=None, kinds=()):
        planners.add(self)
        return battery(self, size, small)

    def receive_or_die(self, seconds):
        helper = bool(planners) and self not in planners
        if helper and received[self] in (0, 3, 8):  # opening, controls, candidates
            killed[self] += 1
            os.kill(self._process.pid, signal.SIGKILL)
        received[self] += helper
        return receive(self, seconds)

    monkeypatch.setattr(Worker, "battery", battery_of_a_planner)
    monkeypatch.setattr(Worker, "_receive", receive_or_die)
    assert helped() == alone[1]
    assert list(killed.values()) == [3] * (LANES - 1)


def test_a_lane_that_fails_in_planning_ends_those_that_wait(helped, monkeypatch):
    def fail(*arguments, **options):
        time.sleep(0.5)  # the others wait by now
        raise RuntimeError("the plan failed")

    monkeypatch.setattr(plan, "make_plan", fail)
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="the plan failed"):
        helped()
    assert not lanes_alive()
    assert time.monotonic() - start < campaigns.STOP_SECONDS


def test_a_lane_that_fails_while_it_helps_ends_all_and_the_rest_is_measured_later(
    alone, helped, monkeypatch
):
    planners = set()
    make_plan, write_cells = plan.make_plan, Session.write_cells

    def noted(*arguments, **options):
        planners.add(threading.current_thread())
        return make_plan(*arguments, **options)

    def fail_in_helper(*arguments):
        if threading.current_thread() not in planners:
            raise RuntimeError("the helper failed")
        write_cells(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(plan, "make_plan", noted)
        patched.setattr(Session, "write_cells", fail_in_helper)
        with pytest.raises(RuntimeError, match="the helper failed"):
            helped()
        assert not lanes_alive()
    assert helped() == alone[1]


def test_lanes_that_wait_end_when_the_problem_is_refused(tmp_path):
    path = tmp_path / "odd.py"
    path.write_text(GOOD.format(expression="3"))
    plan = campaigns.Campaign((read_problem(path),), campaign().options, LANES)
    session = Session.create(tmp_path / "s", plan.manifest())
    campaigns.run(plan, session, Silent())
    session.close()
    assert not lanes_alive()
    assert session.plans()[0]["refused"]


SCRIPT = """
import signal, sys
sys.path.insert(0, {tests!r})
import test_campaign
from pathlib import Path
class Noted(test_campaign.Silent):
    def problem_step(self, problem, step):
        Path({planning!r}).touch()
if __name__ == "__main__":
    # Ignored by what a shell starts with `&`, this test perhaps.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    root, images = Path({root!r}), Path({images!r})
    test_campaign.measure(root, Noted(), images, names=({name!r},), jobs={jobs})
"""


@pytest.mark.parametrize(
    ("sent", "moment"),
    [
        (signal.SIGINT, "planning"),
        (signal.SIGINT, "s/cells/*/*.parquet"),
        (signal.SIGKILL, "s/cells/*/*.parquet"),
    ],
    ids=["ctrl-c-waiting", "ctrl-c-helping", "kill-helping"],
)
def test_an_interrupted_run_of_several_lanes_ends_soon_and_resumes(alone, tmp_path, sent, moment):
    script, root, planning = (tmp_path / name for name in ("run.py", "s", "planning"))
    texts = {"tests": Path(__file__).parent, "planning": planning, "root": root, "images": alone[2]}
    texts = {key: str(path) for key, path in texts.items()}
    script.write_text(SCRIPT.format(**texts, name=NAME, jobs=LANES))
    process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + SECONDS
    while not list(tmp_path.glob(moment)) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(sent)
    assert process.wait(60) != 0
    assert measure(root, images=alone[2], names=(NAME,), jobs=2) == alone[1]


def test_a_lane_that_cannot_start_ends_the_run_with_the_reason(tmp_path, monkeypatch):
    start = Lane.start

    def starting(lane):
        if threading.active_count() > before + 1:
            raise RuntimeError("can't start new thread")
        start(lane)

    session = Session.create(tmp_path / "s", campaign(jobs=LANES).manifest())
    before = threading.active_count()
    monkeypatch.setattr(Lane, "start", starting)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        campaigns.run(campaign(jobs=LANES), session, Silent())
    session.close()
    assert not lanes_alive()


def test_a_helper_goes_where_most_units_wait_and_leaves_the_last_one_to_the_others():
    agenda = Agenda(["a", "b"])
    assert [agenda.next(), agenda.next()] == ["a", "b"]
    small, large = work("small", 2), work("large", 4)
    agenda.offer(small)
    agenda.offer(large)
    helped = [agenda.next() for _ in range(3)]
    assert [unit and unit.record["id"] for unit in helped] == ["large-1", "large-2", None]
    assert agenda.another(large).record["id"] == "large-3"
    assert agenda.another(large) is None
    assert agenda.another(small).record["id"] == "small-1"


def test_the_units_of_a_lazy_work_go_to_its_own_lane_in_order():
    agenda = Agenda(["a"])
    agenda.next()
    lazy = work("a", 4)
    lazy.ledger = Ledger({}, {}.__getitem__)
    units = [agenda.offer(lazy)]
    assert agenda.next() is None
    while units[-1] is not None:
        units.append(agenda.another(lazy))
    assert [unit.record["id"] for unit in units[:-1]] == ["a-0", "a-1", "a-2", "a-3"]


def test_a_lazy_work_whose_station_went_away_goes_on_in_one_lane_where_it_was():
    agenda = Agenda(["a"])
    agenda.next()
    lazy = work("a", 4)
    lazy.problem, lazy.ledger = SimpleNamespace(id="a"), Ledger({}, {}.__getitem__)
    agenda.finish(agenda.offer(lazy))
    agenda.put_back(agenda.another(lazy), "the node is gone")
    assert agenda.next().record["id"] == "a-1"
    assert agenda.next() is None
    assert agenda.another(lazy).record["id"] == "a-2"


def test_a_work_is_finished_with_the_last_unit_whoever_has_it():
    agenda = Agenda(["a"])
    agenda.next()
    shared = work("a", 3)
    first, second = agenda.offer(shared), agenda.next()
    third = agenda.another(shared)
    assert [agenda.finish(unit) for unit in (third, first, second)] == [False, False, True]


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (lambda agenda: agenda.offer(work("a", 3)), Unit),
        (lambda agenda: agenda.offer(work("a", 2)), type(None)),
        (lambda agenda: agenda.drop(), type(None)),
        (lambda agenda: agenda.stop(), type(None)),
    ],
    ids=["units", "too-few-units", "none", "stop"],
)
def test_a_lane_waits_for_a_problem_in_planning_to_the_end_of_that(ending, kind):
    agenda = Agenda(["a"])
    agenda.next()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(agenda.next)
        time.sleep(0.1)
        assert not waiting.done()
        ending(agenda)
        assert isinstance(waiting.result(SECONDS), kind)


def test_a_stopped_agenda_gives_nothing_to_anybody():
    agenda = Agenda(["a", "b"])
    agenda.next()
    shared = work("a", 3)
    agenda.offer(shared)
    agenda.stop()
    assert agenda.next() is None
    assert agenda.another(shared) is None


def test_progress_counts_the_cells_that_several_lanes_measure_of_one_problem(alone, capsys):
    (plan,) = Session.open(alone[0]).plans()
    with ProgressLines(1) as lines, ThreadPoolExecutor(LANES) as pool:
        lines.problem_planned(NAME, plan)
        list(pool.map(lambda _: lines.cells_done(NAME, 1), range(300)))
        lines.problem_done(NAME, plan)
    assert "300 cells measured" in " ".join(capsys.readouterr().err.split())  # lines are wrapped


def test_the_heaviest_unit_is_taken_first_and_one_without_a_prediction_counts_as_a_second():
    agenda = Agenda(["a"])
    agenda.next()
    weights = {"a-1": 5.0, "a-2": 0.5}
    shared = Work("a", {}, (), deque({"id": f"a-{n}"} for n in range(3)), weights)
    assert shared.remaining == 5.0 + 1.0 + 0.5
    taken = [agenda.offer(shared), agenda.another(shared), agenda.another(shared)]
    assert [unit.record["id"] for unit in taken] == ["a-1", "a-0", "a-2"]


def test_with_a_ledger_units_are_taken_in_the_order_given_whatever_is_predicted():
    agenda = Agenda(["a"])
    agenda.next()
    records = deque({"id": f"a-{n}"} for n in range(3))
    lazy = Work("a", {}, (), records, {"a-1": 5.0, "a-2": 9.0}, Ledger({}, lambda name: None))
    taken = [agenda.offer(lazy), agenda.another(lazy), agenda.another(lazy)]
    assert [unit.record["id"] for unit in taken] == ["a-0", "a-1", "a-2"]


def test_a_helper_goes_where_most_predicted_seconds_wait():
    agenda = Agenda(["a", "b"])
    agenda.next(), agenda.next()
    many, heavy = work("many", 5), work("heavy", 3)
    heavy.seconds = dict.fromkeys(("heavy-0", "heavy-1", "heavy-2"), 60.0)
    agenda.offer(many)
    agenda.offer(heavy)
    assert agenda.next().work is heavy


def test_what_a_run_predicts_decides_the_order_of_its_units(alone, helped, monkeypatch):
    predicted, taken = {}, []
    original, take = Lane._predicted, Agenda._take

    def backwards(*arguments):
        found = original(*arguments)
        predicted.update({name: float(n) for n, name in enumerate(found)})
        assert all(seconds > 0 for seconds in found.values())
        return predicted

    def noted(self, shared):
        unit = take(self, shared)
        taken.append(unit.record["id"])
        return unit

    monkeypatch.setattr(Lane, "_predicted", backwards)
    monkeypatch.setattr(Agenda, "_take", noted)
    assert helped() == alone[1]
    assert taken == sorted(taken, key=predicted.__getitem__, reverse=True)
