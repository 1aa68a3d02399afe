"""Trials, what is read of them, and what calibrations make of them."""

import itertools
import threading
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from kernelassay.analysis.score import Share
from kernelassay.errors import ControlError, SessionError, UnsupportedError
from kernelassay.illusion import calibrate, campaign, scores
from kernelassay.illusion.corpus import entries, entry
from kernelassay.illusion.grids import grids
from kernelassay.illusion.oracle import Rule
from kernelassay.illusion.strategies import PUBLISHED
from kernelassay.illusion.trials import CONTROL, FAULTY, MUTANT, Subject, Trials
from kernelassay.report.illusion import print_calibration
from kernelassay.session import Session
from tests.illusion.benches import NumpyBench

COUNT = 12
STRATEGIES = ("default", "regular", "adversarial", "one_shape")
SOFTMAX = entry("softmax")
PADDED = entry("softmax_llm_buggy")
MATMUL = entry("matmul")


def edited(name, before, after, family="semantic"):
    assert MATMUL.text.count(before) == 1
    return Subject(name, MUTANT, MATMUL.text.replace(before, after), "some-rule", family)


def plan():
    tiny = replace(
        MATMUL, schema=replace(MATMUL.schema, dims={"M": (1, 2), "K": (1, 3), "N": (2,)})
    )
    groups = (
        campaign.Group(SOFTMAX, (Subject("softmax", CONTROL, SOFTMAX.text),)),
        campaign.Group(PADDED, (Subject(PADDED.name, FAULTY, PADDED.text),)),
        campaign.Group(
            tiny,
            (
                Subject("matmul", CONTROL, MATMUL.text),
                edited("wrong", "return", "return 1.5 *"),
                Subject("same", MUTANT, MATMUL.text + "\n"),
                Subject("raises", MUTANT, "def run(a, b):\n    raise ValueError('no')\n"),
            ),
            tuple(
                {"id": name, "status": status}
                for name, status in (
                    ("wrong", "distinct"),
                    ("same", "distinct"),
                    ("raises", "distinct"),
                    ("typo", "stillborn"),
                )
            ),
        ),
    )
    return campaign.Plan(groups, STRATEGIES, seed=0, count=COUNT, device="cpu", seconds=5.0)


def filled(root, wanted, monkeypatch, bench=NumpyBench):
    monkeypatch.setattr(campaign, "bench_for", lambda *_: bench(forks=False))
    session = Session.create(root, wanted.manifest())
    trials = Trials(session)
    for group in wanted.groups:
        trials.write_operator(group.op, group.subjects, group.population)
    lane = campaign.Lane(wanted, trials, threading.Event())
    for unit in campaign.units(wanted):
        lane.do(unit)
    session.close()
    return Trials.open(root)


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield filled(tmp_path_factory.mktemp("trials") / "session", plan(), patch)


def test_every_kernel_has_a_trial_on_every_case(trials):
    assert trials.table().num_rows == len(STRATEGIES) * COUNT * (1 + 1 + 4)
    product, softmax, padded = grids(trials)  # by name
    assert [row.name for row in product.rows] == ["matmul", "wrong", "same", "raises"]
    assert product.columns["rounded_max_abs"].shape == (4, len(STRATEGIES) * COUNT)
    assert product.op.schema.dims["K"] == (1, 3)
    for grid in (product, softmax, padded):
        stored = trials.operator(grid.operator)[0]
        assert [*stored.schema.dims] == [*entry(grid.operator).schema.dims]
        assert [*stored.schema.inputs] == [*entry(grid.operator).schema.inputs]
    assert softmax.op == SOFTMAX
    assert padded.op.fault == PADDED.fault


def test_the_published_oracle_finds_the_fault_and_clears_the_controls(trials):
    found = scores.summary(trials, Rule(), (1, 4))
    default, regular, adversarial, _ = found.strategies
    assert default.flagged == Share(1, 1)
    assert default.false == Share(0, 2 * COUNT)
    assert regular.recall == Share(0, COUNT)
    assert adversarial.recall.rate > 0.9


def test_the_adversarial_strategy_lives_on_the_strict_rule(trials):
    found = scores.summary(trials, Rule(), ())
    (strict,) = [one for one in found.strategies if one.strategy == "adversarial"]
    (matched,) = [one for one in found.others["matched"] if one.strategy == "adversarial"]
    assert strict.accused == Share(2, 2)
    assert matched.false.rate < strict.false.rate / 2


def test_one_shape_is_blind_to_a_fault_of_padding(trials):
    found = scores.summary(trials, Rule(), ())
    for rejected in found.one_shape.values():
        assert rejected == {"softmax": False, "softmax_llm_buggy": False, "matmul": False}


def test_buckets_of_mutants_close(trials):
    found = scores.summary(trials, Rule(), (1,))
    made = found.buckets
    assert (made.generated, made.stillborn, made.distinct) == (4, 1, 3)
    assert (made.witnessed, made.unobserved) == (2, 1)
    assert made.stopped == {"raised": 1}
    with pytest.raises(AssertionError):
        replace(made, witnessed=3).check()


def test_the_checks_on_one_shape_are_scored_on_mutants_too(trials):
    made = scores.summary(trials, Rule(), (1,)).mutants
    checks = [one for one in made if one.strategy in scores.ONE_SHAPE]
    assert [one.strategy for one in checks] == list(scores.ONE_SHAPE)
    assert all(one.budget == scores.DRAWS and one.false.count == 0 for one in checks)


def test_a_mutant_that_raises_is_detected_by_every_case(trials):
    for one in scores.summary(trials, Rule(), (1,)).mutants:
        if one.strategy != "matrix-chosen, by rule":  # both come of one rule: none is learnt
            assert one.detection == Share(2, 2), one.strategy


def test_more_cases_never_detect_less_nor_reject_less(trials):
    made = scores.summary(trials, Rule(), (1, 2, 4, 8)).mutants
    for name in STRATEGIES:
        rates = [one for one in made if one.strategy == name]
        assert [one.budget for one in rates] == [1, 2, 4, 8, None]
        for few, more in itertools.pairwise(rates):
            assert few.detection.count <= more.detection.count
            assert few.false.count <= more.false.count


def test_cases_that_the_matrix_chooses_are_scored_on_every_kernel_once(trials):
    made = scores.summary(trials, Rule(), (1, 2)).mutants
    chosen = [one for one in made if one.strategy == "matrix-chosen"]
    assert [one.budget for one in chosen] == [1, 2, COUNT]
    for one in chosen:
        assert one.false == Share(0, 1)
        assert one.detection.total == 2


class RefusingBench(NumpyBench):
    """Refuses texts that say so, as the interpreter does bfloat16."""

    def run(self, text, inputs):
        if "refused" in text:
            raise UnsupportedError("is not computed here")
        return super().run(text, inputs)


def test_what_a_device_refuses_is_neither_witnessed_nor_lost(tmp_path, monkeypatch):
    wanted = plan()
    *others, group = wanted.groups
    refused = Subject("refused", MUTANT, group.op.text + "\n# refused\n", "some-rule", "precision")
    population = (*group.population, {"id": "refused", "status": "distinct"})
    group = replace(group, subjects=(*group.subjects, refused), population=population)
    wanted = replace(wanted, groups=(*others, group))
    made = filled(tmp_path / "session", wanted, monkeypatch, RefusingBench)
    found = scores.summary(made, Rule(), (1,))
    assert (found.buckets.distinct, found.buckets.unjudged) == (4, 1)
    assert all(one.detection.total == 2 for one in found.mutants)


class OverwrittenBench(NumpyBench):
    """Says of every text with a padding that it wrote over its first input."""

    def run(self, text, inputs):
        found = super().run(text, inputs)
        return replace(found, changed=(0,)) if text == PADDED.text else found


def test_a_kernel_that_writes_over_its_input_is_named(tmp_path, monkeypatch, trials):
    made = filled(tmp_path / "session", plan(), monkeypatch, OverwrittenBench)
    assert scores.summary(made, Rule(), ()).changing == (PADDED.name,)
    assert scores.summary(trials, Rule(), ()).changing == ()


def test_a_laxer_rule_has_no_fewer_mutants_to_find(trials):
    for rule in (Rule(scale=1e6), Rule("ignored"), Rule(reference="exact")):
        for one in scores.summary(trials, rule, (2,)).mutants:
            assert one.detection.total == 2, (rule, one.strategy)
    lax = scores.summary(trials, Rule(scale=1e6), ()).mutants
    assert {one.detection.count for one in lax if one.strategy in STRATEGIES[:2]} == {1}


def test_checks_on_one_shape_are_scored_on_mutants_by_their_own_tolerance(trials):
    found = scores.summary(trials, Rule(scale=1e6), (1,)).mutants
    checks = [one for one in found if one.strategy in scores.ONE_SHAPE]
    assert len(checks) == len(scores.ONE_SHAPE)
    for one in checks:
        assert (one.detection, one.false) == (Share(2, 2), Share(0, 1))


def test_mutants_of_a_kernel_that_has_no_distinct_one_are_counted(tmp_path, monkeypatch):
    wanted = plan()
    softmax = replace(wanted.groups[0], population=({"id": "gone", "status": "equivalent"},))
    groups = (softmax, *wanted.groups[1:])
    made = filled(tmp_path / "session", replace(wanted, groups=groups), monkeypatch)
    found = scores.summary(made, Rule(), ()).buckets
    assert (found.generated, found.equivalent, found.distinct) == (5, 1, 3)


def test_failures_shrink_as_the_tolerance_grows(trials):
    for grid in grids(trials):
        before = grid.fails(Rule())
        for scale in (2.0, 10.0, 1e3):
            after = grid.fails(Rule(scale=scale))
            assert not (after & ~before).any()
            before = after


def test_a_control_that_fails_takes_the_score_away(tmp_path, monkeypatch):
    wanted = plan()
    bad = replace(wanted.groups[0].subjects[0], text="def run(x):\n    return x\n")
    groups = (replace(wanted.groups[0], subjects=(bad,)), *wanted.groups[1:])
    made = filled(tmp_path / "session", replace(wanted, groups=groups), monkeypatch)
    with pytest.raises(ControlError, match="softmax"):
        scores.summary(made, Rule(), ())


def test_a_control_must_be_right_without_the_default_strategy_too(tmp_path, monkeypatch):
    wanted = replace(plan(), strategies=("regular",))
    bad = replace(wanted.groups[0].subjects[0], text="def run(x):\n    return x\n")
    groups = (replace(wanted.groups[0], subjects=(bad,)),)
    made = filled(tmp_path / "session", replace(wanted, groups=groups), monkeypatch)
    with pytest.raises(ControlError, match="softmax"):
        scores.summary(made, Rule(), ())


def test_unfinished_trials_are_not_scored(tmp_path, monkeypatch):
    made = filled(tmp_path / "session", plan(), monkeypatch)
    made.path("matmul", "regular", 0).unlink()
    with pytest.raises(SessionError, match="not finished"):
        grids(made)
    found = scores.summary(made, Rule(), (), partial=True)
    assert "PARTIAL: matmul left out" in found.in_words
    assert {one.operator for one in found.strategies[0].kernels} == {SOFTMAX.name, PADDED.name}


def test_a_session_of_problems_holds_no_trials(tmp_path):
    Session.create(tmp_path / "session", {"problems": {}}).close()
    with pytest.raises(SessionError, match="not trials"):
        Trials.open(tmp_path / "session")


def test_damaged_trials_are_named(tmp_path, monkeypatch):
    made = filled(tmp_path / "session", plan(), monkeypatch)
    made.path("matmul", "regular", 0).write_bytes(b"PAR1")
    with pytest.raises(SessionError, match="damaged"):
        grids(made)


def test_a_fitted_tolerance_is_a_multiple_of_what_controls_do(trials):
    made = grids(trials)
    found = calibrate.fitted(made, calibrate.PUBLISHED)
    assert {(one.operator, one.dtype) for one in found} == {
        ("softmax", "float32"),
        ("softmax", "float16"),
        ("matmul", "float32"),
    }
    for one in found:
        assert one.fitted is None or one.fitted < one.current


def test_calibrated_tolerances_find_no_less_and_pay_for_it(trials):
    made = grids(trials)
    before = calibrate.scored(made, None, held_out=False)
    after = calibrate.scored(made, calibrate.PUBLISHED, held_out=False)
    assert after.recall.count >= before.recall.count
    assert before.false.count == 0
    for way in calibrate.WAYS:
        held = calibrate.scored(made, way, held_out=True)
        assert held.recall.total == after.recall.total
        assert held.false.total == after.false.total


def test_a_report_names_what_tolerances_as_they_stand_are_scored_on(trials, capsys):
    made = grids(trials)
    outcomes = [calibrate.scored(made, None, held_out=False)]
    outcomes += [calibrate.scored(made, calibrate.PUBLISHED, held_out=h) for h in (False, True)]
    print_calibration(Console(width=200), [], outcomes)
    lines = capsys.readouterr().out.splitlines()
    for way, scored in zip(outcomes, ("all", "those fitted to", "held out"), strict=True):
        assert any(way.way in line and scored in line for line in lines)


def test_rounding_to_the_dtype_is_no_failure_of_a_scaled_tolerance(trials):
    assert calibrate.scored(grids(trials), calibrate.SCALED, held_out=True).false.count <= 1


def test_the_reduction_of_an_operator_is_what_its_output_lacks():
    assert calibrate.reduction(MATMUL, {"M": 2, "K": 64, "N": 5}) == 64
    assert calibrate.reduction(SOFTMAX, {"B": 2, "S": 3, "H": 256}) == 256
    attention = entry("attention_triton")
    assert calibrate.reduction(attention, {"M": 2, "N": 16, "D": 8}) == 16


def test_intervals_hold_their_share():
    for count in range(9):
        low, high = scores.interval(Share(count, 8))
        assert 0.0 <= low <= count / 8 <= high <= 1.0
    assert scores.interval(Share(0, 0)) is None


def test_the_corpus_runs_in_a_unit_per_kernel_the_largest_first():
    groups = tuple(campaign.Group(op, (Subject(op.name, CONTROL, op.text),)) for op in entries())
    wanted = campaign.Plan(groups, PUBLISHED, seed=0, count=8, device="cpu", seconds=5.0)
    units = campaign.units(wanted)
    assert len(units) == 26
    assert dict(units[0].op.schema.dims)["H"][-1] == 1025
    assert units[-1].op.reference == "matmul" or "attention" in units[-1].op.reference
    assert np.prod([len(PUBLISHED), len(units), wanted.count]) == 1456
