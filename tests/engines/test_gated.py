"""What the gate has measured is not measured again, and no result tells the difference."""

import shutil
from collections import Counter

import pytest
import torch

from kernelassay import campaign as campaigns
from kernelassay.analysis.score import mutant_facts
from kernelassay.cell import CRASH, INFRASTRUCTURE, OK, Cell
from kernelassay.engines.gated import gated
from kernelassay.engines.local import LocalStation
from kernelassay.execute.outputs import ended
from kernelassay.execute.worker import Worker
from kernelassay.gate_mutants import GateMutants
from kernelassay.inputs import GIVEN, InputSpec
from kernelassay.lazy import held
from kernelassay.matrix import load, measured
from kernelassay.mutation import select
from kernelassay.plan import PlanOptions
from kernelassay.problem import load as load_problem
from kernelassay.protocols import DEFAULT
from kernelassay.session import Session, first_input, inputs_of
from kernelassay.suite import suite_problems
from tests.test_campaign import RULES, Silent

NAME = "suite/softmax_rows"
PLAIN, HALF = "original/k00/plain", "original/k00/half"


def cell(candidate, input_id):
    nothing = {"seen": None, "poisoned": None, "exact": None}
    return Cell(candidate, input_id, OK, "", False, False, 0, (), "", **nothing)


def planned(calls, benign):
    """A plan with three inputs, of which the second is not valid."""
    return {
        "calls": [
            {"id": name, "styles": styles, "not_admitted": lost} for name, styles, lost in calls
        ],
        "benign": [
            {"id": name, "call": call, "style": "plain", "unsupported": reason}
            for name, call, reason in benign
        ],
        "mutants": [{"id": "m0", "status": "distinct", "unsupported": ""}],
        "inputs": [{"id": f"i{n}", "valid": n != 1} for n in range(3)],
    }


def known(plan, names, inputs=("i0", "i1", "i2"), *, ordered=False):
    """By input, the names of the fixed cells and of the candidates that count."""
    cells = [cell(name, input_id) for input_id in inputs for name in names]
    found = gated(plan, cells, ordered=ordered)
    return {
        name: tuple([c.candidate for c in cells] for cells in (one.fixed, one.cells))
        for name, one in found.items()
    }


def test_the_first_input_and_one_that_is_not_valid_are_measured_whole():
    plan = planned([("k00", ["plain"], {})], [("benign/k00/a", "k00", "")])
    names = [PLAIN, "control/nan", "benign/k00/a"]
    assert known(plan, names) == {"i2": ([PLAIN, "control/nan"], ["benign/k00/a"])}


def test_the_first_input_counts_if_its_candidates_ran_in_another_order_there():
    plan = planned([("k00", ["plain"], {})], [])
    assert set(known(plan, [PLAIN, "m0"], ordered=True)) == {"i0", "i2"}
    plan["inputs"][0]["valid"] = False  # then they did so on an input that is not valid
    plan["inputs"][1]["valid"] = True
    assert set(known(plan, [PLAIN, "m0"], ordered=True)) == {"i2"}


def test_mutants_of_the_plan_count_and_no_others():
    plan = planned([("k00", ["plain"], {})], [])
    assert known(plan, [PLAIN, "m0", "m1"]) == {"i2": ([PLAIN], ["m0"])}
    plan["mutants"][0]["unsupported"] = "atomics"
    assert known(plan, [PLAIN, "m0", "m1"]) == {"i2": ([PLAIN], [])}


def test_a_variant_that_the_plan_does_not_run_does_not_count():
    plan = planned([("k00", ["plain"], {})], [("benign/k00/a", "k00", "too slow")])
    names = [PLAIN, "benign/k00/a", "benign/k00/b"]
    assert known(plan, names) == {"i2": ([PLAIN], [])}


def test_variants_of_a_call_that_lost_a_style_are_measured_again():
    calls = [("k00", ["plain"], {"half": "strays"}), ("k01", ["plain"], {})]
    variants = [("benign/k00/a", "k00", ""), ("benign/k01/a", "k01", "")]
    names = [PLAIN, HALF, "original/k01/plain", "benign/k00/a", "benign/k01/a"]
    expected = ([PLAIN, "original/k01/plain"], ["benign/k01/a"])
    assert known(planned(calls, variants), names) == {"i2": expected}


def test_originals_count_only_together():
    plan = planned([("k00", ["plain", "half"], {})], [])
    assert known(plan, [PLAIN, "control/nan"]) == {"i2": ([], [])}


def test_nothing_is_known_of_an_input_that_the_gate_did_not_measure():
    plan = planned([("k00", ["plain"], {})], [])
    assert known(plan, [PLAIN], inputs=("i0", "i1")) == {}


# ---- campaigns ----------------------------------------------------------------------------------


def measure(root, images, rules=RULES, cells="rows", reporter=None, name=NAME, inputs=8, given=()):
    problems = tuple(p for p in suite_problems() if p.id == name)
    backend = campaigns.identity_backend()
    options = PlanOptions(
        select(rules),
        quick=True,
        backend=backend,
        max_inputs=inputs,
        given=given,
        sample=30,
        cells=cells,
    )
    campaign = campaigns.Campaign(problems, options, 1)
    session = Session.create(root, campaign.manifest())
    try:
        campaigns.run(campaign, session, reporter or Silent(), images)
        return session.digest()
    finally:
        session.close()


class Runs:
    """What workers are given to run, by input and candidate, and the units that stations are."""

    def __init__(self, monkeypatch):
        self.cells, self.units = Counter(), []
        of_worker, of_station = Worker.measure, LocalStation.measure

        def by_worker(worker, spec, originals, candidates, **options):
            self.cells.update((spec.id, candidate.id) for candidate in candidates)
            return of_worker(worker, spec, originals, candidates, **options)

        def by_station(station, problem, plan, record, *rest):
            self.units.append(record["id"])
            return of_station(station, problem, plan, record, *rest)

        monkeypatch.setattr(Worker, "measure", by_worker)
        monkeypatch.setattr(LocalStation, "measure", by_station)

    def benign(self):
        """How often each benign variant ran, by input."""
        return {key: count for key, count in self.cells.items() if key[1].startswith("benign/")}


class Counting(Silent):
    def __init__(self):
        self.cells = 0

    def cells_done(self, problem, count):
        self.cells += count


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="module", params=["rows", "lazy"])
def again(request, tmp_path_factory, images):
    """A session in which everything was measured, though the gate had it; its digest, its kind."""
    root = tmp_path_factory.mktemp("again") / "s"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "read_gate", lambda *_: None)
        runs = Runs(patched)
        digest = measure(root, images, cells=request.param)
        assert set(runs.benign().values()) == {2}
    return root, digest, request.param


def test_a_benign_variant_runs_twice_on_the_first_input_and_once_on_every_other(
    again, images, tmp_path, monkeypatch
):
    """With lazy cells once there, too: in the gate it runs in the other order as well."""
    runs = Runs(monkeypatch)
    assert measure(tmp_path / "s", images, cells=again[2]) == again[1]
    (plan,) = Session.open(tmp_path / "s").plans()
    assert len(list(inputs_of(plan))) > 1
    benign = runs.benign()
    assert len(benign) == len(plan["inputs"]) * len(plan["benign"])
    twice = [] if again[2] == "lazy" else plan["benign"]
    assert {key for key, count in benign.items() if count == 2} == {
        (first_input(plan), record["id"]) for record in twice
    }
    assert set(benign.values()) <= {1, 2}


@pytest.mark.parametrize("gate", ["kept", "missing", "damaged"])
def test_a_session_with_a_plan_and_no_cells_resumes_with_or_without_the_gates(
    again, images, tmp_path, monkeypatch, gate
):
    root = tmp_path / "s"
    shutil.copytree(again[0], root)
    shutil.rmtree(root / "cells")
    (path,) = (root / "gate").iterdir()
    if gate == "missing":
        shutil.rmtree(root / "gate")
    elif gate == "damaged":
        path.write_bytes(path.read_bytes()[:100])
    runs = Runs(monkeypatch)
    assert measure(root, images, cells=again[2]) == again[1]
    (plan,) = Session.open(root).plans()
    inputs = {name for name, _ in runs.benign()}
    everywhere = {record["id"] for record in inputs_of(plan)}
    left = set() if again[2] == "lazy" else {first_input(plan)}
    assert inputs == (left if gate == "kept" else everywhere)


def test_a_lazy_run_asks_no_station_once_a_problem_is_planned(images, tmp_path, monkeypatch):
    """The gate has run each mutant where it was needed, and the lane has nothing left to ask."""
    runs, counting = Runs(monkeypatch), Counting()
    root = tmp_path / "s"
    digest = measure(root, images, cells="lazy", reporter=counting)
    session = Session.open(root)
    (plan,) = session.plans()
    names = [record["id"] for record in inputs_of(plan)]
    assert any(mutant["status"] == "distinct" for mutant in plan["mutants"])
    assert runs.units == []
    assert set(runs.cells.values()) == {1}
    tables = {name: session.read_cells(NAME, name).to_pylist() for name in names}
    candidates = {name: [row["candidate"] for row in rows] for name, rows in tables.items()}
    assert all(sorted(found) == sorted(candidates[names[0]]) for found in candidates.values())
    run = [
        row
        for rows in tables.values()
        for row in rows
        if row["outcome"] != "implied"
        and not row["candidate"].startswith(("original/", "control/"))
    ]
    assert counting.cells == len(run) == len(runs.cells)
    idle = [session.read_timing(NAME, name) for name in names]
    assert all(not timing["timing"]["prepare"] and timing["work"] for timing in idle)
    monkeypatch.setattr(Session, "read_gate", lambda *_: None)
    assert measure(tmp_path / "again", images, cells="lazy") == digest
    assert len(runs.units) == len(names)


def test_with_inputs_handed_over_a_lazy_run_begins_like_one_of_whole_rows(
    images, tmp_path, monkeypatch
):
    """The gate runs no mutants then, and nothing in another order: the run makes up for both."""
    (problem,) = (p for p in suite_problems() if p.id == NAME)
    torch.save(load_problem(problem).draw(3), tmp_path / "x.pt")
    given = (InputSpec("given-0", "given", 0, f"{GIVEN}{tmp_path / 'x.pt'}"),)
    runs = Runs(monkeypatch)
    measure(tmp_path / "s", images, cells="lazy", inputs=1, given=given)
    (plan,) = Session.open(tmp_path / "s").plans()
    first, other = (record["id"] for record in inputs_of(plan))
    assert other == "given-0"
    expected = {
        (where, b["id"]): 1 + (where == first) for where in (first, other) for b in plan["benign"]
    }
    assert runs.benign() == expected


@pytest.mark.parametrize("again", ["lazy"], indirect=True)
def test_what_the_gate_ran_needlessly_does_not_count(again, images, tmp_path, monkeypatch):
    """As it does before it knows that an input to come is not valid: results tell no difference."""
    monkeypatch.setattr(GateMutants, "wanted", lambda mutants, *_: mutants._mutants)
    runs = Runs(monkeypatch)
    assert measure(tmp_path / "s", images, cells="lazy") == again[1]
    (plan,) = Session.open(tmp_path / "s").plans()
    assert {name for _, name in runs.cells} >= {m["id"] for m in plan["mutants"] if measured(m)}
    assert runs.units == []


def test_lazy_cells_score_as_whole_rows_do(images, tmp_path):
    for cells in ("rows", "lazy"):
        measure(tmp_path / cells, images, cells=cells)
    matrices = [load(Session.open(tmp_path / cells)) for cells in ("rows", "lazy")]
    protocols = held(matrices[0][0].plan, DEFAULT)
    assert protocols
    rows, lazy = (mutant_facts(found, protocols, 1e-2) for found in matrices)
    assert [(m.id, m.witnessed, m.detected) for m in rows] == [
        (m.id, m.witnessed, m.detected) for m in lazy
    ]


def test_a_cell_that_was_lost_with_its_process_is_tried_again():
    plan = planned([("k00", ["plain"], {})], [])
    gone = ended("m0", "i2", INFRASTRUCTURE, "signal SIGKILL")
    found = gated(plan, [cell(PLAIN, "i2"), gone])
    assert found["i2"].cells == ()
    crashed = ended("m0", "i2", CRASH, "signal SIGSEGV")
    assert gated(plan, [cell(PLAIN, "i2"), crashed])["i2"].cells == (crashed,)


def test_mutants_made_before_the_gate_are_told_apart_like_those_made_after_it(images, tmp_path):
    """Of a square product that takes what its arguments have in common at all sizes tried."""
    found, rules = [], ("guard-wrong-size", "guard-drop-conjunct")
    for cells in ("rows", "lazy"):
        root = tmp_path / cells
        measure(root, images, rules, cells, name="suite/matmul_square", inputs=1)
        (plan,) = Session.open(root).plans()
        found.append([(m["id"], m["status"], m["image"]) for m in plan["mutants"]])
    assert found[0] == found[1]
    assert {"equivalent", "distinct"} <= {status for _, status, _ in found[0]}
