"""Explain: what a mutant is, who misses it and by how much, and what would have shown it."""

import json

import pytest

from kernelassay import cell
from kernelassay.analysis.anatomy import anatomy
from kernelassay.analysis.explain import ACCEPTED, explain, find
from kernelassay.analysis.mechanism import LOST, OPEN, REJECTED
from kernelassay.analysis.score import mutant_facts
from kernelassay.cli import invoke
from kernelassay.errors import SessionError, UsageError
from kernelassay.matrix import load
from kernelassay.protocols import CURRENT, V01, VERIFIED
from tests.made_session import GROUPS, OFFICIAL, PRINTED, SHAPE, STRAYS, made, plan


def explained(tmp_path, name, **options):
    return explain([made(tmp_path / "s", **options)], name, 1e-2)


def verdicts(result):
    return {verdict.protocol: verdict for verdict in result.protocols}


def test_a_survivor_has_its_margins_its_reason_and_the_input_it_needs(tmp_path):
    result = explained(tmp_path, "ad06")
    assert (result.bucket, result.problem, result.template) == ("witnessed", "suite/p", "softmax")
    loose, tight = (verdicts(result)[p.name] for p in (V01, CURRENT))
    assert (loose.verdict, loose.reason, loose.first) == (ACCEPTED, "tolerated", "")
    assert (tight.verdict, tight.reason, tight.first) == (REJECTED, "", "official-0")
    # The reference's least element is 1: an error of 1e-3 needs a tolerance of 5e-4.
    assert [judged.margin for judged in loose.inputs] == pytest.approx([0.05] * 5)
    assert [judged.margin for judged in tight.inputs] == pytest.approx([5.0] * 5)
    assert {judged.how for judged in loose.inputs} == {"tolerated"}
    assert (loose.cheapest.input, loose.cheapest.fit) == ("ramp-s1", True)
    assert tight.cheapest is None
    (killer,) = result.killers
    assert killer.margin == pytest.approx(50.0)
    assert killer.margins == pytest.approx({V01.name: 50.0, CURRENT.name: 5000.0})
    assert result.not_held[VERIFIED.name] == VERIFIED.inputs[1:]


def test_the_rule_the_bug_and_the_diff_are_told(tmp_path):
    result = explained(tmp_path, "aa02")
    assert (result.rule, result.line, result.style) == ("tail-drop", 2, "optimised")
    assert result.bug
    assert "-line two\n+edit aa02\n" in result.diff
    assert result.diff.startswith("--- original\n+++ tail-drop (aa02)\n")


def test_official_sizes_come_before_small_inputs(tmp_path):
    # Both the targeted input (16 elements) and the other shape (7) kill it.
    cheapest = verdicts(explained(tmp_path, "aa02"))[V01.name].cheapest
    assert (cheapest.input, cheapest.elements) == ("huge-3e5-s1", 16)
    assert cheapest.why == "the only one at the official sizes, of 2 in all"
    (killer,) = explained(tmp_path / "other", "ac05").killers
    assert (killer.input, killer.sizes, killer.how) == (SHAPE, {"rows": 3}, cell.TIMEOUT)
    assert killer.margin is None


def test_an_input_on_which_correct_kernels_stray_is_named_last(tmp_path):
    strays = {**STRAYS, "ad06": {"ramp-s1": 1.0, SHAPE: 1.0}, "ae07": {"ramp-s1": 1.0}}
    store = made(tmp_path / "s", strays=strays)
    loose, tight = (
        verdicts(explain([store], "ad06", 1e-2))[p.name].cheapest for p in (V01, CURRENT)
    )
    assert (loose.input, tight.input, tight.fit) == ("ramp-s1", SHAPE, True)
    alone = verdicts(explain([store], "ae07", 1e-2))[CURRENT.name].cheapest
    assert (alone.input, alone.fit) == ("ramp-s1", False)
    assert "correct kernels stray" in alone.why


@pytest.mark.parametrize("name", STRAYS)
def test_an_explanation_agrees_with_the_audits_facts(tmp_path, name):
    store = made(tmp_path / "s")
    facts = {f.id: f for f in mutant_facts(load(store), (V01, CURRENT), 1e-2)}
    result = explain([store], name, 1e-2)
    assert result.bucket == facts[name].bucket
    assert {n: v.verdict == REJECTED for n, v in verdicts(result).items()} == facts[name].detected
    assert bool(result.killers) == facts[name].witnessed
    assert result.valid == result.ran == len(GROUPS)
    core = {mutant for _, mutant in anatomy([store], 1e-2).core.members}
    missed = all(v.verdict == ACCEPTED for v in verdicts(result).values())
    assert (name in core) == (missed and facts[name].witnessed)
    # A survivor that some input proves wrong has an input to add; nothing else has.
    for verdict in result.protocols:
        assert (verdict.cheapest is not None) == (
            verdict.verdict == ACCEPTED and facts[name].witnessed
        )


def test_a_finding_alone_is_told_as_such(tmp_path, capsys):
    result = explained(tmp_path, "af08")
    assert (result.bucket, result.killers) == ("flagged_only", ())
    (flag,) = result.flags
    assert (flag.kind, flag.inputs, flag.first) == ("race-shared", len(GROUPS), "official-0")
    assert invoke(["explain", "af08", str(tmp_path / "s")]) == 0
    assert "only the sanitizer saw it" in capsys.readouterr().out


def test_implied_and_lost_cells_are_told_as_such(tmp_path):
    implied = {("aa01", name) for name in OFFICIAL[1:]} | {("aa02", "official-3")}
    store = made(tmp_path / "s", implied=implied, lost={("ab03", "official-2")})
    seen = explain([store], "aa01", 1e-2)
    assert (seen.ran, seen.implied, seen.valid) == (4, 4, 8)
    verdict = verdicts(seen)[V01.name]
    assert (verdict.verdict, verdict.first) == (REJECTED, "official-0")
    assert [j.how for j in verdict.inputs[1:]] == [cell.IMPLIED] * 4
    assert verdict.inputs[1].detail == "witnessed on an earlier input"
    assert verdicts(explain([store], "aa02", 1e-2))[V01.name].verdict == OPEN
    lost = explain([store], "ab03", 1e-2)
    assert (lost.lost, verdicts(lost)[V01.name].verdict) == (1, LOST)


def test_a_witness_that_implied_cells_leave_open_is_told_as_open(tmp_path, capsys):
    store = made(tmp_path / "s", implied={("ae07", SHAPE)})
    assert explain([store], "ae07", 1e-2).bucket == OPEN
    assert explain([store], "aa01", 1e-2).bucket == "witnessed"
    assert invoke(["explain", "ae07", store.name]) == 0
    assert "--cells rows" in capsys.readouterr().out


def test_a_mutant_that_did_not_run_says_why(tmp_path, capsys):
    store = made(tmp_path / "s")
    buckets = {
        name: explain([store], name, 1e-2) for name in ("b001", "b002", "b003", "b004", "aa01")
    }
    assert [one.bucket for one in buckets.values()] == [
        "stillborn",
        "equivalent",
        "duplicate",
        "unmeasured",
        "witnessed",
    ]
    assert buckets["b001"].reason == "expected a ;"
    assert buckets["b003"].twin == "aa01"
    assert buckets["b004"].reason == "inline PTX"
    assert buckets["aa01"].duplicates == ("b003",)
    assert not any(buckets[name].protocols for name in ("b001", "b002", "b003", "b004"))
    assert invoke(["explain", "b003", str(tmp_path / "s")]) == 0
    assert "same image as aa01: explain that one" in capsys.readouterr().out


def test_a_mutant_of_a_refused_problem_says_so(tmp_path):
    store = made(tmp_path / "s")
    store.write_plan("suite/p", {**plan(), "refused": "the substrate is wrong"})
    result = explain([store], "aa01", 1e-2)
    assert (result.bucket, result.reason) == ("not admitted", "the substrate is wrong")


def test_an_unfinished_problem_is_named(tmp_path):
    store = made(tmp_path / "s", ("suite/p",))
    store.cell_path("suite/p", SHAPE).unlink()
    with pytest.raises(SessionError, match="1 of 1 problems are not finished"):
        explain([store], "aa01", 1e-2)
    with pytest.raises(SessionError, match="problem that is not finished: suite/p"):
        explain([store], "aa01", 1e-2, partial=True)


def test_a_name_is_an_id_or_how_one_alone_begins():
    plans = [plan()]
    assert find(plans, "ad")[1]["id"] == "ad06"
    assert find(plans, "ad06")[1]["id"] == "ad06"
    with pytest.raises(UsageError, match="2 mutants begin with 'ab'") as several:
        find(plans, "ab")
    assert several.value.hint == "name one of them: ab03, ab04"
    with pytest.raises(UsageError, match="unknown mutant 'ad07'") as unknown:
        find(plans, "ad07")
    assert "ad06" in unknown.value.hint
    with pytest.raises(UsageError):
        find(plans, "")


def test_an_exact_id_wins_over_longer_ones():
    made_plan = plan(strays={"aa": {}, "aab": {}})
    assert find([made_plan], "aa")[1]["id"] == "aa"


def test_json_has_no_number_that_is_not_finite(tmp_path, capsys):
    store = made(tmp_path / "s", strays={**STRAYS, "aa01": {"official-0": float("inf")}})
    assert invoke(["explain", "aa01", store.name, "--json"]) == 0
    text = capsys.readouterr().out
    assert "NaN" not in text.replace("NaN or infinity", "") and "Infinity" not in text
    assert json.loads(text)["data"]["killers"][0]["how"] == "NaN or infinity"


@pytest.mark.parametrize("name", ["ad06", "ac05"])
def test_the_printed_explanation(tmp_path, capsys, name):
    made(tmp_path / "s")
    assert invoke(["explain", name, str(tmp_path / "s")]) == 0
    assert capsys.readouterr().out == (PRINTED / f"explain-{name}.txt").read_text()


def test_the_mutants_of_several_sessions_are_found_together(tmp_path):
    first = made(tmp_path / "p")
    other = made(tmp_path / "q", ("suite/q",), strays={"ff99": {SHAPE: 1.0}})
    result = explain([first, other], "ff", 1e-2)
    assert (result.id, result.problem) == ("ff99", "suite/q")
    assert result.session == f"{first.name}, {other.name}"
