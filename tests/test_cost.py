"""Predicted seconds grow with work, fits find what made the timings, and heavy units come first."""

import json
import shutil
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay import cost
from kernelassay.analysis.audit import audit_sessions
from kernelassay.analysis.cost import cost_report, fitted, machine_of, read_timings
from kernelassay.cli import invoke
from kernelassay.cost import ANY, CANDIDATE, ORIGINAL, PREPARE, Coefficients, Machine
from kernelassay.cost_fit import Sample, fit, fit_coefficients, spearman
from kernelassay.machines import MACHINES
from kernelassay.problem import Lever, Problem
from kernelassay.session import Session, inputs_of, slug
from kernelassay.timing import (
    PLAN,
    CallWork,
    Losses,
    PlanClock,
    PlanTiming,
    Replacement,
    Stint,
    Timing,
    UnitTiming,
    UnitWork,
    Work,
)
from tests.test_campaign import measure

counts = st.integers(0, 1 << 40)
works = st.builds(Work, counts, counts)
rates = st.floats(1e3, 1e15)
coefficients = st.builds(Coefficients, st.floats(0, 10), rates, rates)

TRUE = Coefficients(2e-3, 3e9, 5e8)
OTHER = Coefficients(1e-4, 1e8, 1e8)
NAME = "suite/relu"


def machine(**table):
    kinds = dict.fromkeys((ANY, PREPARE, ORIGINAL, CANDIDATE), OTHER)
    return Machine("cpu", "a test", {**kinds, **table})


def unit_of(kernel, runs=3, seconds=TRUE.seconds):
    """A unit of one matrix product whose seconds are those of some coefficients."""
    original = "original/k00/plain"
    work = UnitWork(kernel, {"k00": CallWork("matmul", kernel, Work())}, 0)
    took = seconds(kernel)
    timing = Timing(took, took, {original: took}, {original: runs * took}, {original: runs})
    return UnitTiming(timing, work)


# -- prediction ---------------------------------------------------------------------------------


@given(coefficients, works, works)
def test_more_work_never_takes_less_time(found, work, more):
    assert found.seconds(work + more) >= found.seconds(work) >= found.overhead


@given(coefficients, works, st.floats(0.01, 100))
def test_scaled_coefficients_scale_every_prediction(found, work, factor):
    assert found.scaled(factor).seconds(work) == pytest.approx(factor * found.seconds(work))


@given(works, st.integers(0, 50), st.integers(1, 50))
def test_a_unit_takes_longer_with_every_candidate(work, runs, more):
    unit = unit_of(work).work
    for chosen in MACHINES.values():
        few, many = (
            chosen.unit(unit, ["original/k00/plain"], {"original/k00/plain": count}).seconds
            for count in (runs, runs + more)
        )
        assert few < many


def test_a_style_that_was_not_measured_has_its_styles_coefficients_and_then_the_executors():
    found = machine(**{"matmul/plain": TRUE, "*/wide": TRUE.scaled(2)})
    assert found.of("matmul", "plain") == TRUE
    assert found.of("matmul", "wide") == TRUE.scaled(2)
    assert found.of("matmul", "flash") == OTHER


@pytest.mark.parametrize("chosen", MACHINES.values(), ids=lambda m: m.executor)
def test_the_coefficients_that_ship_are_complete_and_say_where_they_are_from(chosen):
    assert {ANY, PREPARE, ORIGINAL, CANDIDATE} <= set(chosen.table)
    assert len(chosen.provenance) > 30
    assert all(c.overhead >= 0 and c.flops > 0 and c.bytes > 0 for c in chosen.table.values())


def problem(level, *sizes):
    levers = tuple(Lever(f"size_{n}", size) for n, size in enumerate(sizes))
    return Problem(f"p{level}", level, "file", "", "", levers)


def test_before_planning_the_level_counts_most_and_then_the_sizes():
    lightest_first = [
        problem(1),
        problem(1, 16, 16),
        problem(1, 1 << 20, 1 << 20),
        problem(2, 2),
        problem(3),
    ]
    guesses = [cost.guess(p) for p in lightest_first]
    assert guesses == sorted(set(guesses))


# -- fitting ------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    st.floats(1e-5, 1e-2),
    st.floats(1e8, 1e13),
    st.floats(1e8, 1e13),
    st.integers(0, 1 << 32),
)
def test_a_fit_finds_the_coefficients_that_made_the_timings(overhead, flops, moved, seed):
    random = Random(seed)
    true = Coefficients(overhead, flops, moved)
    samples = []
    for bound in ("flops", "bytes") * 15:
        seconds = overhead * 10 ** random.uniform(-1, 3)
        share = random.uniform(0.01, 0.5)
        work = (
            Work(int(seconds * flops), int(share * seconds * moved))
            if bound == "flops"
            else Work(int(share * seconds * flops), int(seconds * moved))
        )
        samples.append(Sample(work, true.seconds(work)))
    found = fit_coefficients(samples, OTHER)
    assert found.overhead == pytest.approx(true.overhead, rel=0.1)
    assert found.flops == pytest.approx(true.flops, rel=0.1)
    assert found.bytes == pytest.approx(true.bytes, rel=0.1)


def test_a_few_samples_that_took_far_too_long_do_not_spoil_a_fit():
    samples = [
        Sample(Work(n * 10**6, 10**4), TRUE.seconds(Work(n * 10**6, 10**4))) for n in range(1, 40)
    ]
    held_up = [Sample(s.work, 100 * s.seconds) for s in samples[::8]]
    found = fit_coefficients([*samples, *held_up], OTHER)
    for sample in samples:
        assert found.seconds(sample.work) == pytest.approx(sample.seconds, rel=0.05)


def test_samples_of_one_size_only_scale_what_was_known():
    work = Work(10**6, 10**5)
    found = fit_coefficients([Sample(work, 5.0)] * 9, OTHER)
    assert found.seconds(work) == pytest.approx(5.0)
    assert found.overhead / OTHER.overhead == pytest.approx(OTHER.flops / found.flops)


def test_a_kind_without_timings_keeps_its_coefficients():
    before = machine(**{"softmax/plain": TRUE.scaled(7)})
    after = fit([unit_of(Work(n * 10**6, n)) for n in range(1, 20)], before, "a test")
    assert after.table["softmax/plain"] == TRUE.scaled(7)
    assert after.table["matmul/plain"] != OTHER


def test_a_fitted_machine_predicts_the_units_it_was_fitted_on():
    units = [unit_of(Work(n * 10**7, n * 10**4)) for n in range(1, 20)]
    found = fit(units, machine(), "a test")
    for unit in units:
        parts = found.unit(unit.work, unit.timing.kernels, unit.timing.runs)
        assert found.kernel("original/k00/plain", unit.work) == pytest.approx(
            unit.timing.kernels["original/k00/plain"], rel=0.05
        )
        assert parts.seconds == pytest.approx(unit.timing.seconds, rel=0.1)


def test_no_timings_leave_a_machine_as_it_was():
    assert fit([], machine(), "a test").table == machine().table


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([1, 2, 3], [10, 200, 3000], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 1, 2], [5, 5, 9], 1.0),
        ([1, 2, 3], [7, 7, 7], None),
        ([], [], None),
    ],
)
def test_the_rank_correlation_sees_the_order_alone(left, right, expected):
    assert spearman(left, right) == (None if expected is None else pytest.approx(expected))


# -- timings ------------------------------------------------------------------------------------


def test_stages_are_timed_from_one_step_to_the_next():
    now = iter([0.0, 2.0, 2.0, 5.0, 5.0, 6.0]).__next__
    shown = []
    clock = PlanClock(shown.append, now)
    for step in ("tracing", "checking inputs", "tracing"):
        clock.step(step)
    assert clock.stop() == PlanTiming({"tracing": 3.0, "checking inputs": 3.0}, {})
    assert shown == ["tracing", "checking inputs", "tracing"]


def test_merged_timings_add_up_and_a_kernel_is_timed_by_its_first_run():
    first = Timing(1.0, 2.0, {"a": 0.1}).ran("a", 4.0).ran("a", 5.0, runs=2)
    second = Timing(kernels={"a": 9.0, "b": 0.2}, replacements=(Replacement("silence", 3.0, 7.0),))
    both = first.merge(second)
    assert both.kernels == {"a": 0.1, "b": 0.2}
    assert (both.candidates, both.runs) == ({"a": 9.0}, {"a": 3})
    assert both.seconds == 1.0 + 2.0 + 9.0 + 3.0 + 7.0


def test_timings_survive_storage():
    unit = unit_of(Work(5, 6))
    timing = unit.timing.merge(Timing(replacements=(Replacement("exit code 1", 0.5),)))
    plan = PlanTiming(
        {"tracing": 1.5}, {"i": UnitTiming(timing, unit.work), "j": UnitTiming(timing, None)}
    )
    assert PlanTiming.from_json(json.loads(json.dumps(plan.to_json()))) == plan


steps = st.tuples(st.sampled_from(("heard", "lose", "resume", "pass")), st.floats(0, 100))


@given(st.lists(steps))
def test_what_lost_processes_cost_is_no_more_than_went_by_and_no_moment_counts_twice(course):
    passed, deaths = 0.0, 0
    losses = Losses(lambda: passed)
    losses.begin()
    for step, seconds in course:
        passed += seconds
        if step == "heard":
            losses.heard()
        elif step == "resume":
            losses.resume()
        elif step == "lose":
            losses.lose("silence")
            deaths += 1
    losses.resume()
    found = losses.take()
    assert len(found) == deaths
    assert all(one.seconds >= 0 and one.wasted >= 0 for one in found)
    assert sum(one.seconds + one.wasted for one in found) <= passed + 1e-6
    assert losses.take() == ()


def test_a_process_lost_between_two_requests_costs_no_time_between_them():
    now = iter([0.0, 1.0, 3.0, 50.0, 54.0]).__next__
    losses = Losses(now)
    losses.begin()
    losses.heard()
    losses.lose("died")
    losses.begin()
    losses.resume(without=1.0)
    assert losses.take() == (Replacement("died", 3.0, 2.0),)


def test_an_input_that_was_kept_tells_nothing_of_preparing_one_and_of_originals():
    units = [unit_of(Work(n * 10**6, n)) for n in range(1, 20)]
    kept = [UnitTiming(Timing(fixed=1e-6), unit.work) for unit in units]
    assert fit(units + kept, machine(), "a test") == fit(units, machine(), "a test")


# -- a session with its timings -----------------------------------------------------------------


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    root = tmp_path_factory.mktemp("timed") / "s"
    return root, measure(root, names=(NAME,))


def test_every_planning_and_every_unit_of_a_run_is_timed(timed):
    session = Session.open(timed[0])
    (plan,) = session.plans()
    stored = PlanTiming.from_json(session.read_timing(NAME, PLAN))
    assert set(stored.units) == {record["id"] for record in plan["inputs"]}
    assert all(seconds > 0 for seconds in stored.stages.values())
    first = next(iter(inputs_of(plan)))["id"]
    mutants = sum(m["status"] == "distinct" for m in plan["mutants"])
    whole = 2 * (mutants + len(plan["benign"]))  # in a second order of threads, too
    for record in inputs_of(plan):
        timing = Timing.from_json(session.read_timing(NAME, record["id"])["timing"])
        assert timing.prepare > 0
        assert timing.fixed > sum(timing.kernels.values()) > 0
        assert sum(timing.runs.values()) == (whole if record["id"] == first else mutants)
        assert set(timing.candidates) == set(timing.runs) == set(timing.kernels)


def test_a_session_without_timings_has_the_same_digest_and_audit(timed, tmp_path):
    copy = tmp_path / "s"
    shutil.copytree(timed[0], copy)
    shutil.rmtree(copy / "timings")
    assert Session.open(copy).digest() == timed[1]
    with_timings, without = (
        audit_sessions([Session.open(root)], None, 1e-2).to_json() for root in (timed[0], copy)
    )
    assert {**with_timings, "session": ""} == {**without, "session": ""}


def test_the_cost_of_a_session_holds_each_stage_against_its_prediction(timed, capsys):
    assert invoke(["cost", str(timed[0]), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["data"]
    timings = read_timings(Session.open(timed[0]))
    stages = report["stages"]
    measured = sum(unit.timing.seconds for unit in timings.units)
    parts = ("preparing inputs", "originals and controls", "candidates", "replacing workers")
    assert sum(stages[name]["measured"] for name in parts) == pytest.approx(measured)
    assert stages["tracing"]["predicted"] is None
    assert {"pointwise/optimised", PREPARE, ORIGINAL, CANDIDATE} == set(report["kinds"])
    assert report["kinds"]["pointwise/optimised"]["count"] == len(timings.all_units)
    assert -1 <= report["rank_correlation"] <= 1


def test_the_cost_tables_name_the_coefficients_and_the_correlation(timed, capsys):
    assert invoke(["cost", str(timed[0]), "--fit-on", str(timed[0])]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "fitted on" in shown
    assert "rank correlation" in shown
    assert "no worker was replaced" in shown


def test_a_unit_that_nothing_was_measured_for_has_no_part_in_the_cost(timed, tmp_path):
    idle, without = tmp_path / "idle", tmp_path / "without"
    reports = []
    for root in (idle, without):
        shutil.copytree(timed[0], root)
        session = Session.open(root)
        (plan,) = session.plans()
        *_, last = inputs_of(plan)
        stored = UnitTiming.from_json(session.read_timing(NAME, last["id"]))
        path = session.root / "timings" / slug(NAME) / f"{slug(last['id'])}.json"
        path.unlink()
        if root == idle:
            session.write_timing(NAME, last["id"], UnitTiming(Timing(), stored.work).to_json())
        found = cost_report([session], machine_of(session))
        reports.append({**found.to_json(), "session": ""})
        reports[-1]["fitted"] = fitted(session).table
    assert reports[0] == reports[1]


def test_a_session_without_timings_has_no_cost_to_show(timed, tmp_path, capsys):
    copy = tmp_path / "s"
    shutil.copytree(timed[0], copy)
    shutil.rmtree(copy / "timings")
    assert invoke(["cost", str(copy)]) == 4
    assert "no timings" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['{"stages": ', '{"stages": {}}', "[]"])
def test_a_damaged_timing_is_named_and_may_be_deleted(timed, tmp_path, capsys, text):
    copy = tmp_path / "s"
    shutil.copytree(timed[0], copy)
    (path,) = copy.glob("timings/*/plan.json")
    path.write_text(text)
    assert invoke(["cost", str(copy)]) == 1
    shown = capsys.readouterr().err
    assert "damaged timing" in shown
    assert "delete" in shown
    path.unlink()
    assert invoke(["cost", str(copy)]) == 0


def test_what_is_no_session_has_no_cost(tmp_path, capsys):
    assert invoke(["cost", str(tmp_path)]) == 1
    assert "not a session" in capsys.readouterr().err


def test_a_run_notes_how_long_it_was_at_work_and_how_much_it_measured(timed, capsys):
    assert invoke(["cost", str(timed[0]), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["data"]
    (stint,) = report["stints"]
    assert stint["seconds"] > 0
    assert (stint["lanes"], stint["devices"]) == (1, 0)
    session = Session.open(timed[0])
    (plan,) = session.plans()
    mutants = sum(m["status"] == "distinct" for m in plan["mutants"])
    cells = sum(len(session.read_cells(NAME, record["id"])) for record in inputs_of(plan))
    assert report["extent"] == {"mutants": mutants, "cells": cells, "implied": 0}


def test_every_run_of_a_session_is_noted_once_however_often_it_tells(tmp_path):
    session = Session.create(tmp_path / "s", {"problems": {}})
    first, second = Stint(1.0, 2.0, 3, 1), Stint(5.0, 1.0, 3, 1)
    for stint in (second, first, Stint(1.0, 4.0, 3, 1)):
        session.write_stint(stint)
    assert session.stints() == [Stint(1.0, 4.0, 3, 1), second]


def test_only_what_mutants_cost_grows_with_them(timed, capsys):
    session = Session.open(timed[0])
    report = cost_report([session], machine_of(session))
    mutants = report.extent.mutants
    assert report.growth(mutants) == 1.0
    assert report.growth(2 * mutants) < 2.0
    growths = [report.growth(n) for n in range(0, 10 * mutants, 3)]
    assert growths == sorted(growths)
    assert growths[0] > 0  # the problems cost something without any mutant
    assert invoke(["cost", str(timed[0]), "--mutants", str(2 * mutants)]) == 0
    told = f"{2 * mutants} mutants would take {report.growth(2 * mutants):.2f} times as long"
    assert told in capsys.readouterr().out
