"""What the gate has measured of an input outlives an interruption of the planning."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelassay import campaign as campaigns
from kernelassay import cell
from kernelassay.compile import nvrtc
from kernelassay.engines import remembered
from kernelassay.engines.local import UNITS
from kernelassay.engines.remembered import RememberingWorker
from kernelassay.errors import SessionError
from kernelassay.execute.bench import Candidate, InputFacts
from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.execute.cuda.toolbox import CudaToolbox
from kernelassay.execute.outputs import ended
from kernelassay.execute.worker import UnitResult, Worker
from kernelassay.inputs import official_inputs
from kernelassay.mutation import select
from kernelassay.plan import PlanOptions
from kernelassay.session import Session
from kernelassay.suite import suite_problems
from kernelassay.timing import CallWork, PlanClock, Timing, UnitTiming, UnitWork, Work
from tests.test_campaign import RULES, Silent

SPEC = official_inputs()[0]
RELU = next(p for p in suite_problems() if p.id == "suite/relu")
FACTS = InputFacts(
    id=SPEC.id,
    digest="d",
    shapes=((2, 3), ()),
    output_shape=(2,),
    finite=True,
    reference_error=1 / 3,
    magnitude=float("inf"),
    problem="",
    output_dtypes=("float32",),
    arguments={"k00": {"n": 6, "scale": 0.1, "same": True}},
    work=UnitWork(Work(1, 2), {"k00": CallWork("pointwise", Work(3, 4), Work(5, 6))}, 7),
)
UNIT = UnitResult(
    facts=FACTS,
    fixed=[ended("original/k00/plain", SPEC.id, cell.CRASH, "x")],
    cells=[ended("m0", SPEC.id, cell.TIMEOUT, "y")],
    timing=Timing(prepare=0.1, kernels={"original/k00/plain": 0.25}),
)
KERNEL = Candidate("m0", "mutant", "k00", "plain", "text", None)


class Measuring:
    """A worker that has always the same to tell, and counts."""

    def __init__(self, unit=UNIT):
        self.unit, self.count = unit, 0

    def measure(self, *_, on_cell, **__):
        self.count += 1
        for found in self.unit.cells:
            on_cell(found)
        return self.unit


def remembering(worker, folder, problem=RELU, settings=("cpu",)):
    return RememberingWorker(worker, folder, problem, settings)


def told(one, *, kernel=KERNEL, **options):
    """What it tells of an input, and the cells that it told one by one."""
    heard = []
    unit = one.measure(SPEC, {}, [kernel], on_cell=heard.append, **options)
    assert heard == unit.cells
    return unit


def test_what_was_measured_is_told_again_as_it_was(tmp_path):
    first, second = Measuring(), Measuring()
    assert told(remembering(first, tmp_path)) is UNIT
    assert told(remembering(second, tmp_path)) == UNIT
    assert (first.count, second.count) == (1, 0)


@pytest.mark.parametrize(
    "other",
    [
        {"kernel": replace(KERNEL, source="another text")},
        {"kernel": replace(KERNEL, style="optimised")},
        {"check_order": True},
    ],
)
def test_what_depends_on_something_else_is_measured(tmp_path, other):
    worker = Measuring()
    told(remembering(worker, tmp_path))
    told(remembering(worker, tmp_path), **other)
    assert worker.count == 2


def test_another_text_of_the_problem_or_other_settings_are_something_else(tmp_path):
    worker = Measuring()
    told(remembering(worker, tmp_path))
    told(remembering(worker, tmp_path, settings=("cuda",)))
    changed = SimpleNamespace(id=RELU.id, digest="another", shrunk=())
    told(remembering(worker, tmp_path, problem=changed))
    assert worker.count == 3


def test_what_another_compiler_or_option_of_a_gpu_yields_is_something_else(monkeypatch):
    """A node of a cluster keeps its cache for longer than one version of NVRTC."""
    made = set()
    for version in ("13.0", "13.1"):
        monkeypatch.setattr(nvrtc, "version", lambda version=version: version)
        for options in (CudaOptions(), CudaOptions(tf32=True), CudaOptions(lanes=7)):
            made.add(CudaToolbox(Path("own.cubin"), Path(), options).settings)
    assert len(made) == 4  # how many lanes there are changes no result


@pytest.mark.parametrize(
    "change",
    [
        {"rejected": "the device has too little memory"},
        {"broken": True},
        {"cells": [ended("m0", SPEC.id, cell.INFRASTRUCTURE, "signal SIGKILL")]},
    ],
)
def test_what_a_machine_may_be_to_blame_for_is_not_kept(tmp_path, change):
    worker = Measuring(replace(UNIT, **change))
    for _ in range(2):
        told(remembering(worker, tmp_path))
    assert worker.count == 2


@pytest.mark.parametrize("ending", [".json", ".parquet"])
def test_a_damaged_or_missing_file_is_nothing(tmp_path, ending):
    worker = Measuring()
    one = remembering(worker, tmp_path)
    told(one)
    (path,) = one.folder.glob(f"*{ending}")
    path.write_bytes(path.read_bytes()[:20])
    assert told(one) == UNIT
    path.unlink()
    assert told(one) == UNIT
    assert worker.count == 3


def test_what_cannot_be_kept_is_told_all_the_same(tmp_path, monkeypatch):
    """As when another run deletes the folder in the moment before a file is made in it."""

    def gone(path, data):
        raise SessionError("cannot write: No such file or directory", where=str(path))

    worker = Measuring()
    one = remembering(worker, tmp_path)
    monkeypatch.setattr(remembered, "write_whole", gone)
    assert told(one) == UNIT
    monkeypatch.undo()
    assert told(one) == UNIT
    assert (worker.count, one.recalled) == (2, False)
    assert told(one) == UNIT
    assert (worker.count, one.recalled) == (2, True)


def test_seconds_spent_in_a_planning_that_was_broken_off_belong_to_its_stage():
    """Else the stage would be shorter than the units that it contains."""
    clock = PlanClock(now=iter([10.0, 11.0]).__next__)
    clock.step("checking inputs")
    for name, before in (("a", True), ("b", False)):
        clock.unit(name, UnitTiming(Timing(prepare=8.0, fixed=0.5), None), before=before)
    assert dict(clock.stop().stages) == {"checking inputs": 1.0 + 8.5}


class Interrupted(KeyboardInterrupt):
    """Somebody presses Ctrl-C."""


@pytest.mark.parametrize("cells", ["rows", "lazy"])
def test_a_campaign_that_is_broken_off_in_a_planning_goes_on_where_it_was(
    tmp_path, monkeypatch, cells
):
    runs, broken_at = Counter(), [3]
    of_worker = Worker.measure

    def measure(worker, spec, originals, candidates, **options):
        runs[spec.id] += 1
        if sum(runs.values()) == broken_at[0]:
            raise Interrupted
        return of_worker(worker, spec, originals, candidates, **options)

    monkeypatch.setattr(Worker, "measure", measure)
    backend = campaigns.identity_backend()
    options = PlanOptions(
        select(RULES), True, backend, max_inputs=4, sample=6, benign=2, cells=cells
    )
    campaign = campaigns.Campaign((RELU,), options, 1)

    def run(name):
        session = Session.create(tmp_path / name, campaign.manifest())
        try:
            campaigns.run(campaign, session, Silent(), tmp_path / "images")
            return session.digest()
        finally:
            session.close()

    with pytest.raises(Interrupted):
        run("cut")
    assert len(list((tmp_path / "images" / UNITS).glob("*/*.json"))) == 2
    before = Counter(runs)
    broken_at[0] = 0
    told_before = []
    of_clock = PlanClock.unit

    def unit(clock, name, timing, *, before):
        told_before.append(before)
        of_clock(clock, name, timing, before=before)

    monkeypatch.setattr(PlanClock, "unit", unit)
    digest = run("cut")
    assert told_before == [True, True, False, False]
    again = runs - before
    units = 0 if cells == "lazy" else len(valid_inputs(tmp_path / "cut"))
    assert sum(again.values()) == 4 - 2 + units
    assert not (tmp_path / "images" / UNITS).exists()
    assert run("whole") == digest


def valid_inputs(root):
    (plan,) = Session.open(root).plans()
    return [record for record in plan["inputs"] if record["valid"]]
