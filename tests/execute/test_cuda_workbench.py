"""The CUDA workbench answers in the order that a worker reads, whatever becomes of its processes.

Its processes are played by a script: no CUDA is needed.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelassay import cell
from kernelassay.errors import DeviceError, ProblemError, UnsupportedError
from kernelassay.execute.cuda import workbench
from kernelassay.execute.cuda.child import Release, Released, Results, Task
from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.execute.cuda.sharing import SHARES
from kernelassay.execute.cuda.workbench import (
    SILENT,
    ChildDiedError,
    CudaWorkbench,
    TooLittleMemoryError,
)
from kernelassay.execute.messages import Measure, Prepared
from kernelassay.execute.outputs import without_output
from kernelassay.inputs import official_inputs
from kernelassay.suite import suite_problems
from kernelassay.timing import Replacement, Timing

SPEC = official_inputs()[0]
FACTS = SimpleNamespace(runs=True)
FIXED = Prepared([], Timing(0.5, 0.25))
FAULT = cell.ILLEGAL_ADDRESS


class Scripted:
    """A process that gives the answers of a script, and dies where one is an error."""

    total_bytes = 140 << 30

    def __init__(self, answers):
        self.answers = iter(answers)
        self.tasks = []

    def wait_until_ready(self):
        pass

    def tell(self, wish):
        pass

    def send(self, task):
        self.tasks.append(task)

    def receive(self, seconds):
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        pass


@pytest.fixture(autouse=True)
def own_locks(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))


@pytest.fixture
def replies(monkeypatch):
    """The replies to requests for candidates, when one process after another plays its script."""
    problem = next(p for p in suite_problems() if p.id == "suite/relu")

    def of(scripts, *requests):
        scripts = iter(scripts)
        monkeypatch.setattr(CudaWorkbench, "_fork", lambda self: Scripted(next(scripts, [])))
        workbench = CudaWorkbench(problem, Path(), CudaOptions(), "0", lambda: None)
        found = []
        for names in requests:
            candidates = tuple(SimpleNamespace(id=name) for name in names)
            found.append(list(workbench.measure(Measure(SPEC, {}, candidates, False))))
        return found

    return of


def results(*names, seconds=0.125, ended=""):
    cells = tuple((without_output(name, SPEC.id, cell.OK, ""), seconds) for name in names)
    return Results(cells, ended)


def kinds(found):
    """A reply by what a worker tells it by: a cell by its candidate."""
    return [
        reply[0].candidate if isinstance(reply, tuple) else getattr(reply, "why", type(reply))
        for reply in found
    ]


def lost(found):
    return [reply for reply in found if isinstance(reply, Replacement)]


def test_without_losses_there_are_facts_the_fixed_cells_and_pairs(replies):
    ((facts, fixed, *pairs),) = replies([[FACTS, FIXED, results("a", "b")]], "ab")
    assert facts is FACTS
    assert fixed == FIXED
    assert [(found.candidate, seconds) for found, seconds in pairs] == [("a", 0.125), ("b", 0.125)]


def test_a_fault_is_told_once_another_process_has_brought_a_cell(replies):
    scripts = [[FACTS, FIXED, results("a", ended=FAULT)], [results("b"), results("c")]]
    (found,) = replies(scripts, "abc")
    assert kinds(found[2:]) == ["a", FAULT, "b", "c"]
    (one,) = lost(found)
    assert one.seconds >= 0
    assert 0 <= one.wasted < 1


def test_the_time_of_a_process_that_hung_is_wasted_and_is_not_its_candidates(replies):
    hung = ChildDiedError("a kernel ran too long", expired=True, certain=True)
    (found,) = replies([[FACTS, FIXED, hung], [results("b")]], "ab")
    assert kinds(found[2:]) == ["a", "expired", "b"]
    timed_out, seconds = found[2]
    assert (timed_out.outcome, seconds) == (cell.TIMEOUT, None)


def test_cells_that_a_corruption_makes_void_are_measured_again(replies):
    scripts = [[FACTS, FIXED, results(ended="corrupted")], [results("a"), results("b")]]
    (found,) = replies(scripts, "ab")
    assert kinds(found[2:]) == ["corrupted", "a", "b"]


def test_every_one_of_several_losses_is_told(replies):
    died = ChildDiedError("signal SIGKILL")
    (found,) = replies([[FACTS, FIXED, died], [died], [died], [results("b")]], "ab")
    assert kinds(found[2:]) == ["a", "died", "died", "died", "b"]
    assert found[2] == (found[2][0], None)
    assert found[2][0].outcome == cell.INFRASTRUCTURE  # somebody's kill -9 kills no mutant


def test_a_candidate_that_ends_two_processes_alone_is_a_crash(replies):
    died = ChildDiedError("signal SIGSEGV")
    (found,) = replies([[FACTS, FIXED, died], [died], [died], [results("b")]], "ab")
    assert found[2][0].outcome == cell.CRASH


def test_a_process_lost_with_the_last_candidate_is_told_in_the_next_request(replies):
    scripts = [[FACTS, FIXED, results("a", ended=FAULT)], [FACTS, FIXED, results("a")]]
    first, second = replies(scripts, "a", "a")
    assert kinds(first[2:]) == ["a"]
    assert kinds(second) == [SimpleNamespace, FAULT, Prepared, "a"]


def test_a_correct_kernel_that_hangs_makes_the_input_unusable(replies):
    hung = ChildDiedError("a kernel ran too long", expired=True, certain=True)
    with pytest.raises(UnsupportedError, match="too long"):
        replies([[FACTS, hung]], "a")


def test_of_an_input_that_nothing_runs_on_there_is_nothing_but_the_facts(replies):
    facts = SimpleNamespace(runs=False)
    (found,) = replies([[facts, results("a")]], "a")
    assert found == [facts]


def test_a_process_that_dies_before_it_has_told_anything_is_tried_once_more(replies):
    died = ChildDiedError("signal SIGKILL")
    (found,) = replies([[died], [FACTS, FIXED, results("a")]], "a")
    assert kinds(found) == [SimpleNamespace, "died", Prepared, "a"]
    (found,) = replies([[FACTS, died], [FACTS, FIXED, results("a")]], "a")
    assert kinds(found) == [SimpleNamespace, "died", Prepared, "a"]
    crashed = ChildDiedError("signal SIGSEGV")
    with pytest.raises(ProblemError, match="SIGSEGV"):
        replies([[crashed], [crashed]], "a")


def test_two_processes_that_were_killed_or_fell_silent_say_nothing_of_the_problem(replies):
    for death in (ChildDiedError("signal SIGKILL"), ChildDiedError("no answer", why=SILENT)):
        with pytest.raises(DeviceError, match="prepared the input ended"):
            replies([[death], [death]], "a")


def test_a_process_that_falls_silent_says_nothing_of_a_candidate(replies):
    silent = ChildDiedError("no answer within 200 s", why=SILENT)
    (found,) = replies([[FACTS, FIXED, silent], [silent], [silent], [results("b")]], "ab")
    assert kinds(found[2:]) == ["a", SILENT, SILENT, SILENT, "b"]
    assert found[2][0].outcome == cell.INFRASTRUCTURE


# ---- the device's memory ------------------------------------------------------------------------


class Holding(Scripted):
    """A process that also tells how many shares were held at each thing it was asked."""

    def __init__(self, answers, room):
        super().__init__(answers)
        self.room = room
        self.asked = []

    def send(self, task):
        self.asked.append((type(task), self.room.held, getattr(task, "heavy", None)))


@pytest.fixture
def heavy(monkeypatch):
    """The replies for an input that takes three shares, and what its processes were asked."""
    problem = next(p for p in suite_problems() if p.id == "suite/relu")
    monkeypatch.setattr(workbench, "shares_of", lambda need, total, lanes: 3)

    def of(scripts, names):
        scripts, made = iter(scripts), []

        def fork(self):
            made.append(Holding(next(scripts, []), self._room))
            return made[-1]

        monkeypatch.setattr(CudaWorkbench, "_fork", fork)
        bench = CudaWorkbench(problem, Path(), CudaOptions(official=True), "0", lambda: None)
        candidates = tuple(SimpleNamespace(id=name) for name in names)
        try:
            found = list(bench.measure(Measure(SPEC, {}, candidates, False)))
        finally:
            assert bench._room.held == 0
        return found, [one.asked for one in made if one.asked]

    return of


def test_a_big_input_has_its_room_until_the_process_has_given_it_back(heavy):
    found, (asked,) = heavy([[FACTS, FIXED, results("a"), Released()]], "a")
    assert kinds(found[2:]) == ["a"]
    assert asked == [(Task, 3, True), (Task, 3, True), (Release, 3, None)]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_memory_that_does_not_do_is_tried_with_the_whole_device(heavy, place):
    little = TooLittleMemoryError("2 GiB")
    script = [FACTS, FIXED, results("a"), Released()]
    script[place:place] = [little, FACTS] if place == 1 else [little]
    found, (asked,) = heavy([script], "a")
    assert kinds(found[2:]) == ["a"]
    assert [held for _, held, _ in asked] == [3] * (1 + place // 2) + [SHARES] * (3 - place // 2)

    with pytest.raises(UnsupportedError, match="too little memory: 2 GiB"):
        heavy([[little, FACTS, little, Released()]], "a")


def test_a_candidate_that_memory_does_not_do_for_runs_again_with_the_whole_device(heavy):
    ends = results("a", "b", ended=cell.OUT_OF_MEMORY)
    scripts = [[FACTS, FIXED, ends], [results("a"), results("b"), Released()]]
    found, (_, asked) = heavy(scripts, "ab")
    assert kinds(found[2:]) == [cell.OUT_OF_MEMORY, "a", "b"]
    assert [held for _, held, _ in asked] == [SHARES, SHARES]


def test_what_the_whole_device_does_not_do_for_is_told(heavy):
    ends = results("a", ended=cell.OUT_OF_MEMORY)
    found, _ = heavy([[FACTS, FIXED, ends], [ends], [results("b"), Released()]], "ab")
    assert kinds(found[2:])[1:] == ["a", cell.OUT_OF_MEMORY, "b"]


@pytest.mark.parametrize("shares", [0, 3])
def test_what_has_a_part_of_the_memory_is_not_prepared_by_the_process_that_stands_by(
    replies, monkeypatch, shares
):
    monkeypatch.setattr(workbench, "shares_of", lambda need, total, lanes: shares)
    told = []
    monkeypatch.setattr(Scripted, "tell", lambda self, wish: told.append(wish))
    scripts = [[FACTS, FIXED, results("a", ended=FAULT)], [results("b"), Released()]]
    replies(scripts, "ab")
    assert bool(told) == (shares == 0)


def test_room_is_left_when_the_process_is_lost_instead_of_giving_memory_back(heavy):
    heavy([[FACTS, FIXED, results("a"), ChildDiedError("signal SIGKILL")]], "a")


def test_a_device_that_no_process_can_use_says_nothing_of_the_problem(heavy, monkeypatch):
    def dies(self):
        raise ChildDiedError("exit code 1")

    monkeypatch.setattr(Scripted, "wait_until_ready", dies)
    with pytest.raises(DeviceError, match="exit code 1"):
        heavy([[]], "a")
