"""Suites chosen on sessions: what may be in one, what it is scored on, what its inputs are for."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay import cell
from kernelassay.cli import invoke
from kernelassay.cli.ladder import ladder
from kernelassay.cli.suite import suite as command
from kernelassay.errors import NothingToTestError, SessionError
from kernelassay.protocols import CURRENT
from kernelassay.session import Session
from kernelassay.synthesis import choosers, cover
from kernelassay.synthesis.expressible import FORMATS, JSON
from kernelassay.synthesis.folds import HELD_OUT
from kernelassay.synthesis.generate.rungs import NAMES
from kernelassay.synthesis.suites import (
    RECIPE,
    Asked,
    analyse,
    curve,
    pools_of,
)
from kernelassay.synthesis.traits import trait
from tests.made_session import GROUPS, OFFICIAL, PRINTED, SHAPE, STRAYS, made

HUGE, RAMP = "huge-3e5-s1", "ramp-s1"
ALL_WAYS = ("id", "rule", "family", "problem")


def suites(root, *, partial=False, **asked):
    store = Session.open(root)
    wanted = Asked(**asked)
    return analyse(store, pools_of(store, wanted, partial=partial), wanted)


def chosen(result):
    return [[one.input for one in suite.inputs] for suite in result.suites]


def test_greed_takes_the_widest_input_then_the_cheaper_of_equals(tmp_path):
    made(tmp_path / "s")
    (one,) = suites(tmp_path / "s").problems
    assert (one.witnessed, one.reachable, one.official.count) == (6, 6, 1)
    assert [(p.input, p.elements, p.detected) for p in one.greedy] == [
        (HUGE, 16, 4),
        (SHAPE, 7, 5),
        (RAMP, 16, 6),
    ]
    assert [(o.budget, o.detected, o.elements) for o in one.optima] == [
        (1, 4, 16),
        (2, 5, 23),
        (3, 6, 39),
    ]
    assert set(one.cheapest.inputs) == {HUGE, SHAPE, RAMP}


def test_a_chosen_input_says_what_no_other_of_its_suite_detects(tmp_path):
    made(tmp_path / "s")
    (suite,) = suites(tmp_path / "s", chooser="greedy", budget=3).suites
    alone = {one.input: [(a.mutant, a.rule) for a in one.alone] for one in suite.inputs}
    assert alone == {
        HUGE: [("ab03", "guard-delete"), ("ab04", "guard-delete")],
        SHAPE: [("ac05", "guard-delete")],
        RAMP: [("ad06", "fp16-load-temp")],
    }
    assert all(a.bug for one in suite.inputs for a in one.alone)
    assert (suite.detected.count, suite.detected.total, suite.elements) == (6, 6, 39)


def test_an_input_on_which_a_correct_kernel_is_rejected_is_never_chosen(tmp_path):
    made(tmp_path / "s", benign={"benign/order": {HUGE: 2e-2}})
    result = suites(tmp_path / "s", chooser="exact", budget=9)
    (one,) = result.problems
    assert one.kept_out == {HUGE: "the correct kernel benign/order is rejected"}
    assert one.correct == 2
    # Nothing else detects ab03 and ab04, which stay in the denominator.
    assert (one.reachable, one.witnessed) == (4, 6)
    assert sorted(chosen(result)[0]) == [RAMP, SHAPE]


def test_which_inputs_are_fit_and_what_they_detect_depends_on_the_rule(tmp_path):
    made(tmp_path / "s", benign={"benign/order": {RAMP: 1e-3}})
    loose, tight = (suites(tmp_path / "s", protocol=p) for p in (None, CURRENT))
    assert not loose.problems[0].kept_out
    assert set(tight.problems[0].kept_out) == {RAMP}
    assert (loose.official.count, tight.official.count) == (1, 2)
    assert (loose.rule, tight.rule) == tuple(
        f"|out - ref| <= {t} + {t} |ref|; no NaN, equal infinities" for t in ("0.01", "0.0001")
    )


@settings(max_examples=15, deadline=None)
@given(
    st.sets(st.sampled_from([n for n in GROUPS if n not in OFFICIAL])),
    st.dictionaries(st.sampled_from(list(GROUPS)), st.just(0.5)),
    st.sampled_from(list(choosers.CHOOSERS)),
    st.integers(1, 4),
)
def test_no_suite_holds_an_input_that_is_refused_or_rejects_a_correct_kernel(
    tmp_path_factory, refused, strays, chooser, budget
):
    root = tmp_path_factory.mktemp("s")
    made(root, refused=refused, benign={"benign/b": strays})
    try:
        result = suites(root, chooser=chooser, budget=budget)
    except NothingToTestError:
        assert set(GROUPS) <= refused | set(strays)
        return
    held = {name for suite in chosen(result) for name in suite}
    steps = {pick.input for one in result.problems for pick in one.greedy}
    assert not (held | steps) & (refused | set(strays))
    assert set(result.problems[0].kept_out) == refused | set(strays)


def test_rows_that_are_not_whole_are_an_error_that_names_the_way_out(tmp_path):
    made(tmp_path / "s", implied={("aa01", RAMP)})
    with pytest.raises(SessionError, match="which inputs detect them is not known") as caught:
        suites(tmp_path / "s")
    assert "--cells rows" in caught.value.hint
    assert invoke(["suite", str(tmp_path / "s")]) == 1


def test_an_implied_cell_of_an_input_that_may_not_be_chosen_does_not_matter(tmp_path):
    made(tmp_path / "s", implied={("aa01", RAMP)}, benign={"benign/b": {RAMP: 0.5}})
    assert suites(tmp_path / "s").witnessed == 6


def test_a_mutant_that_lost_a_cell_is_left_out_and_named(tmp_path):
    made(tmp_path / "s", lost={("ab03", RAMP)})
    (one,) = suites(tmp_path / "s").problems
    assert (one.witnessed, one.open) == (5, ("ab03",))


def test_every_curve_scores_every_witnessed_mutant_once(tmp_path):
    made(tmp_path / "s", problems=("suite/p", "suite/q"))
    result = suites(tmp_path / "s", held_out=ALL_WAYS)
    # The three rules fall in one half, and none is left to choose on: no such curve.
    assert {c.held_out for c in result.curves} == {"", "id", "family", "problem"}
    for one in result.curves:
        assert {share.total for share in one.detected.values()} == {12}
        counts = [one.detected[budget].count for budget in sorted(one.detected)]
        assert one.chooser != "greedy" or counts == sorted(counts)
    known = {c.chooser: c.detected[3].count for c in result.curves if not c.held_out}
    assert known == {"greedy": 12, "exact": 12, "smoothed": 12, RECIPE: 12}


def test_a_mutant_held_out_does_not_help_to_choose_what_it_is_scored_on(tmp_path):
    """Each is the only one of its problem that its input detects: greed cannot know it."""
    strays = {f"m{n}": {name: 1.0} for n, name in enumerate([HUGE, RAMP, SHAPE])}
    store = made(tmp_path / "s", strays=strays)
    pools = pools_of(store, Asked())
    alone = curve(pools, "greedy", "id", (9,)).detected[9]
    assert (alone.count, alone.total) == (0, 3)
    assert curve(pools, "greedy", "", (9,)).detected[9].count == 3


def test_what_is_known_of_other_problems_chooses_for_one_without_known_mutants(tmp_path):
    pools = pools_of(made(tmp_path / "s", problems=("suite/p", "suite/q")), Asked())
    masks = tuple(np.full(len(one.mutants), one.problem == "suite/q") for one in pools)
    known = choosers.Known(pools, masks)
    assert choosers.greedy(known, 0, 2) == ()
    names = [pools[0].inputs[column] for column in choosers.smoothed(known, 0, 3)]
    assert names[0] == HUGE
    assert set(names) == {HUGE, SHAPE, RAMP}
    assert choosers.smoothed(choosers.Known(pools[:1], masks[:1]), 0, 2) == ()


def test_a_problem_of_which_no_input_may_be_chosen_stands_beside_others(tmp_path):
    store = made(tmp_path / "s", problems=("suite/p", "suite/q"))
    asked = Asked(barred=lambda plan, record: plan["problem"]["id"].removeprefix("suite/p"))
    result = analyse(store, pools_of(store, asked), replace(asked, held_out=ALL_WAYS))
    assert chosen(result) == [[HUGE, SHAPE], []]
    assert (result.witnessed, result.reachable.count) == (12, 6)
    assert all(share.total == 12 for one in result.curves for share in one.detected.values())


def test_a_smoothed_choice_spends_its_whole_budget(tmp_path):
    made(tmp_path / "s")
    (suite,) = suites(tmp_path / "s", budget=5).suites
    assert len(suite.inputs) == 5
    assert suite.detected.count == 6


def test_a_recipe_stands_on_each_problem_for_inputs_that_it_has(tmp_path):
    pools = pools_of(made(tmp_path / "s", problems=("suite/p", "suite/q")), Asked())
    recipe = choosers.recipe(choosers.everything(pools), 9)
    assert recipe == ("values: huge", "sizes, official, forward, finite", "values: ramp")
    for one in pools:
        held = [one.inputs[column] for column in choosers.resolved(one, recipe)]
        assert held == [HUGE, SHAPE, RAMP]
        assert choosers.resolved(one, ("values: of no input", recipe[2])) == (
            one.inputs.index(RAMP),
        )


@pytest.mark.parametrize(
    ("identifier", "group", "transform", "expected"),
    [
        ("huge-3e5-s1", "targeted", "huge-3e5", "values: huge"),
        ("small/large-1e2-s1", "targeted", "large-1e2", "values: large"),
        ("official-3", "official", "official", "official-3"),
        ("params-redrawn-2/x300/sign-mixed", "parameters", "sign-mixed", "params-redrawn-2"),
        ("small/strided/sign-mixed", "layout", "sign-mixed", "strided/sign-mixed"),
        ("n=3/huge-3e5/redrawn", "shape", "huge-3e5", "sizes, huge, reverse, packed"),
        ("schema-4", "protocol", "uniform-10", "schema-4"),
        (
            "taxonomy/n=3/same-sign:x9-s1",
            "generated",
            "same-sign:x9",
            "taxonomy: same-sign, reverse, packed",
        ),
        ("mosaic/n=3/ties~ramp-s1", "generated", "ties~ramp", "mosaic: mosaic, reverse, packed"),
    ],
)
def test_inputs_of_different_problems_share_a_trait(identifier, group, transform, expected):
    spec = {"transform": transform, "order": "reverse", "surroundings": "packed"}
    assert trait({"id": identifier, "group": group, "spec": spec}) == expected


def test_a_session_without_a_proven_fault_has_nothing_to_choose_for(tmp_path):
    made(tmp_path / "s", strays={"ae07": {}})
    with pytest.raises(NothingToTestError, match="witnessed mutant"):
        suites(tmp_path / "s")
    assert invoke(["suite", str(tmp_path / "s")]) == 4


def test_one_acceptance_rule_is_chosen_for(tmp_path, capsys):
    made(tmp_path / "s")
    names = ["--protocol", "kernelbench", "--protocol", "kernelbench-v0.1"]
    assert invoke(["suite", str(tmp_path / "s"), *names]) == 1
    assert "one acceptance rule" in capsys.readouterr().err


def test_a_way_to_hold_out_that_divides_nothing_is_told(tmp_path, capsys):
    made(tmp_path / "s")
    ways = [f"--held-out={way}" for way in ("family", "problem")]
    assert invoke(["suite", str(tmp_path / "s"), *ways]) == 0
    printed = capsys.readouterr().out
    assert "nothing can be held out by problem" in printed and "held out: each family" in printed
    assert "held out by family" not in printed


def test_the_command_offers_all_that_there_is_to_choose_by():
    offered = {option.name: getattr(option.type, "choices", ()) for option in command.params}
    assert set(offered["chooser"]) == choosers.CHOOSERS.keys()
    assert set(offered["held_out"]) == HELD_OUT.keys()
    assert set(offered["form"]) == set(FORMATS)
    assert set(offered["expressible"]) == {*FORMATS} - {JSON}
    (rungs,) = (option for option in ladder.params if option.name == "rungs")
    assert all(name in rungs.help for name in NAMES)


def test_a_suite_is_plain_data(tmp_path, capsys):
    made(tmp_path / "s")
    assert invoke(["suite", str(tmp_path / "s"), "--json", "--choose", "greedy"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "kernelassay/suite"
    (suite,) = document["data"]["suites"]
    assert suite["detected"] == {"count": 5, "total": 6, "rate": 5 / 6}
    assert [one["input"] for one in suite["inputs"]] == [HUGE, SHAPE]
    assert document["data"]["curves"][0]["detected"]["1"]["count"] == 4


def test_the_tables_say_what_each_share_is_of(tmp_path, capsys):
    made(tmp_path / "s", benign={"benign/b": {RAMP: 0.5}}, problems=("suite/p", "suite/q"))
    assert invoke(["suite", str(tmp_path / "s"), "--held-out", "problem"]) == 0
    printed = capsys.readouterr().out
    stored = PRINTED / "suite.txt"
    assert printed == stored.read_text()


def test_exchanges_never_lose_expected_weight():
    rng = np.random.default_rng(3)
    for _ in range(20):
        chances, weights = rng.random((12, 7)), rng.random(12)
        start = cover.greedy_expected(chances, weights, 3)
        end = cover.exchanged(chances, weights, start)

        def hit(columns, chances=chances, weights=weights):
            return float(weights @ (1 - (1 - chances[:, list(columns)]).prod(axis=1)))

        assert len(end) == len(set(end)) == 3
        assert hit(end) >= hit(start) - 1e-9


def test_a_stop_is_detected_as_a_wrong_output_is(tmp_path):
    assert STRAYS["ac05"] == {SHAPE: cell.TIMEOUT}
    (one,) = pools_of(made(tmp_path / "s"), Asked())
    row = [mutant.id for mutant in one.mutants].index("ac05")
    assert [n for n, hit in zip(one.inputs, one.detects[row], strict=True) if hit] == [SHAPE]
