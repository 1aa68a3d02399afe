"""A campaign beside the published study: what is finished counts, and every sum closes."""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernelassay import cell
from kernelassay.analysis.score import Share
from kernelassay.analysis.where_fit import Survivors, finished, survivors
from kernelassay.protocols import CURRENT, V01, VERIFIED
from kernelassay.session import Session
from tests.test_score import OFFICIAL, TARGETED, cells, result, session

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "beside_published.py"
SOFTMAX = "kernelbench-1/23_Softmax"
OTHER = "kernelbench-1/24_LogSoftmax"
BOTH = {"problems": {SOFTMAX: "d", OTHER: "d"}}


def printed(monkeypatch, capsys, *roots):
    """What the command prints, its lines split into cells, by section."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, roots)])
    monkeypatch.syspath_prepend(SCRIPT.parent)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    parts = [part.splitlines() for part in capsys.readouterr().out.split("\n\n")]
    sections: dict[str, list[list[str]]] = {}
    title = ""
    for lines in parts:
        if len(lines) > 1 and set(lines[1]) == {"="}:
            title = lines[0]
        rows = [[c.strip() for c in line.split("  ") if c.strip()] for line in lines]
        sections.setdefault(title, []).extend(rows)
    return sections


def rows(sections, start):
    """The rows of the sections of which the title starts so, by first cell."""
    return {
        row[0]: row[1:]
        for title, found in sections.items()
        if title.startswith(start)
        for row in found
        if row
    }


def test_ours_stand_beside_the_published_figures(tmp_path, monkeypatch, capsys):
    session(tmp_path / "s", problem=SOFTMAX)
    sections = printed(monkeypatch, capsys, tmp_path / "s")
    stages = rows(sections, "1. ")
    assert stages["admitted"] == ["1", "188"]
    assert stages["stillborn"] == ["1", "10.0%", "1594", "15.5%"]
    assert stages["distinct"] == ["7", "70.0%", "8253", "80.1%"]
    assert stages["witnessed"] == ["4", "57.1%", "7384", "89.5%"]
    families = rows(sections, "2. ")
    assert families["precision"] == ["1", "100.0% (1/1)", "0.0% (0/1)", "271", "78.6%"]
    assert families["all"] == ["4", "50.0% (2/4)", "25.0% (1/4)", "7384", "16.9%"]
    protocols = rows(sections, "3. ")
    assert protocols[V01.name] == ["5", "1", "50.0% (2/4)", "50.0% (2/4)", "80.0%", "0/1", "0"]
    two = next(row[0] for row in sections["3. Protocols"] if row[0].startswith("two inputs"))
    assert two.endswith("chosen greedily: 100.0% (4/4) (published 98.1%)")
    assert protocols[CURRENT.name][-2:] == ["1/1", "-"]
    assert rows(sections, "4. ")["median problem"] == ["50.0%", "10%"]
    assert rows(sections, "5. ")[SOFTMAX] == ["7", "4", "2", "1", "0/1", "1/1"]
    assert rows(sections, "6. ")[SOFTMAX] == ["6", "2", "1", "1", "28"]


def test_each_survivor_has_one_reason_and_a_first_proof(tmp_path, monkeypatch, capsys):
    """Two of four are missed; each family weighs what it does in the study."""
    session(tmp_path / "s", problem=SOFTMAX)
    sections = printed(monkeypatch, capsys, tmp_path / "s")
    rests = rows(sections, "7. ")
    # Of three boundary faults one is missed, and the only precision fault: (1735 / 3 + 271) / 2006.
    assert "With the study's mix of families the loss were 42.3% (here 50.0%," in " ".join(rests)
    assert rests["boundary"] == ["3", "1 (33.3%)", "0 (0.0%)", "0 (0.0%)"]
    assert rests["precision"] == ["1", "0 (0.0%)", "0 (0.0%)", "1 (100.0%)"]
    assert rests["targeted, own size"] == ["2", "100.0%"]


@pytest.mark.parametrize(
    ("bounds", "mutants", "variants"),
    [
        ({}, "all", "all"),
        (
            {"sample": 40, "benign": 0},
            "a sample of at most 40 per problem",
            "at most 0 per problem",
        ),
    ],
)
def test_the_conditions_say_of_how_many_kernels_the_counts_are(
    tmp_path, monkeypatch, capsys, bounds, mutants, variants
):
    session(tmp_path / "s", problem=SOFTMAX, manifest=bounds)
    said = rows(printed(monkeypatch, capsys, tmp_path / "s"), "Conditions")
    assert (said["mutants:"], said["correct variants:"]) == ([mutants], [variants])


@pytest.mark.parametrize(("cuda", "expected"), [({}, "off"), ({"cuda": {"tf32": 1}}, "cudnn")])
def test_a_switch_that_only_a_gpu_heeds_is_off_on_the_cpu(
    tmp_path, monkeypatch, capsys, cuda, expected
):
    session(tmp_path / "s", problem=SOFTMAX, manifest={"tf32": {"cudnn": True}, **cuda})
    said = rows(printed(monkeypatch, capsys, tmp_path / "s"), "Conditions")
    assert said["TF32 of references: " + expected] == []


def test_what_a_run_has_not_finished_is_named_and_left_out(tmp_path, monkeypatch, capsys):
    store = session(tmp_path / "s", problem=SOFTMAX, manifest=BOTH)
    whole = printed(monkeypatch, capsys, tmp_path / "s")
    assert rows(whole, "1. Problems")["unfinished"] == ["1", "-"]
    assert [f"not planned yet (1): {OTHER}"] in whole["1. Problems"]
    store.write_plan(OTHER, {**store.read_plan(SOFTMAX), "problem": {"id": OTHER}})
    store.write_cells(OTHER, TARGETED, cell.table(cells(TARGETED)))
    begun = printed(monkeypatch, capsys, tmp_path / "s")
    assert [f"unfinished: {OTHER}: 1 of 6 inputs measured"] in begun["1. Problems"]
    same = [title for title in whole if title not in ("Conditions", "1. Problems")]
    assert same
    assert all(whole[title] == begun[title] for title in same)


def test_a_refused_problem_is_named_with_the_first_line_of_its_reason(
    tmp_path, monkeypatch, capsys
):
    store = session(tmp_path / "s", problem=SOFTMAX, manifest=BOTH)
    refused = {"refused": "no kernel for aten.fft\nand more", "mutants": [], "inputs": []}
    store.write_plan(
        OTHER,
        {**store.read_plan(SOFTMAX), "problem": {"id": OTHER, "official_shape": True}, **refused},
    )
    problems = printed(monkeypatch, capsys, tmp_path / "s")["1. Problems"]
    assert [f"refused: {OTHER}: no kernel for aten.fft"] in problems
    assert ["refused", "1", "-"] in problems


def test_a_protocol_sets_aside_the_problems_that_it_cannot_be_scored_on(tmp_path):
    # The correct kernel strays 5e-4: the official check passes it at 1e-2 and not at 1e-4.
    strays = session(tmp_path / "p", problem=SOFTMAX, manifest=BOTH, original_error=5e-4)
    steady = session(tmp_path / "q", problem=OTHER, manifest=BOTH)
    done = finished([strays, steady], 1e-2)
    loose, tight, verified = (done.scored[p.name] for p in (V01, CURRENT, VERIFIED))
    assert (set(loose.alone), dict(loose.aside)) == ({SOFTMAX, OTHER}, {})
    assert loose.total.detection == Share(4, 8)
    # That is no reason to leave it out: it is part of the price of the tolerance.
    assert (set(tight.alone), dict(tight.aside)) == ({SOFTMAX, OTHER}, {})
    assert (tight.total.originals, tight.total.false_rejection) == (Share(1, 2), Share(2, 2))
    assert verified.total is None
    assert verified.aside[OTHER].startswith("no valid input verified-x3")


def test_a_problem_that_a_lazy_run_leaves_open_for_a_protocol_is_set_aside_for_it(tmp_path):
    """It was for others: "hidden" is proven wrong on an input that is none of this one."""
    store = session(tmp_path / "s", problem=SOFTMAX, manifest=BOTH)
    whole = session(tmp_path / "w", problem=OTHER, manifest=BOTH)
    table = store.read_cells(SOFTMAX, OFFICIAL[-1])
    left_out = cell.Cell.implied("hidden", OFFICIAL[-1], "witnessed").row()
    swapped = [left_out if r["candidate"] == "hidden" else r for r in table.to_pylist()]
    store.write_cells(SOFTMAX, OFFICIAL[-1], table.from_pylist(swapped, schema=table.schema))
    loose = finished([store, whole], 1e-2).scored[V01.name]
    assert set(loose.alone) == {OTHER}
    assert "is undecided on 1 mutants (hidden ...)" in loose.aside[SOFTMAX]
    assert loose.total.detection == Share(2, 4)


def test_a_witnessed_mutant_that_no_score_accounts_for_is_noticed(tmp_path):
    done = finished([session(tmp_path / "s", problem=SOFTMAX)], 1e-2)
    more = [*done.facts, next(fact for fact in done.facts if fact.witnessed)]
    for scored in done.scored.values():
        scored.check(done.facts)
        with pytest.raises(AssertionError):
            replace(scored, aside={}).check(more)


def test_a_survivor_may_be_proven_wrong_at_a_tighter_tolerance_alone(tmp_path):
    store = session(tmp_path / "s", problem=SOFTMAX)
    (matrix,) = (done := finished([store], 1e-2)).matrices
    loose, tight = (done.scored[p.name] for p in (V01, CURRENT))
    assert survivors(matrix, {"k00"}, loose, tight, 1e-2) == Survivors(6, 2, 1, 1)
    assert survivors(matrix, {"k01"}, loose, tight, 1e-2) == Survivors(0, 0, 0, 0)
    # "quiet" now strays 4.5e-3 on official inputs: past their tightest, 4e-3, within the check.
    for name in OFFICIAL:
        table = store.read_cells(SOFTMAX, name)
        quiet = result("quiet", name, 9e-3).row()
        swapped = [quiet if r["candidate"] == "quiet" else r for r in table.to_pylist()]
        store.write_cells(SOFTMAX, name, table.from_pylist(swapped, schema=table.schema))
    (matrix,) = (done := finished([Session.open(tmp_path / "s")], 1e-2)).matrices
    loose, tight = (done.scored[p.name] for p in (V01, CURRENT))
    assert survivors(matrix, {"k00"}, loose, tight, 1e-2) == Survivors(6, 3, 2, 2)


def test_a_directory_that_is_no_session_ends_with_an_error(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="not a session directory"):
        printed(monkeypatch, capsys, tmp_path)


def test_a_run_that_has_finished_nothing_is_not_one_that_admits_nothing(
    tmp_path, monkeypatch, capsys
):
    Session.create(tmp_path / "s", {"problems": {SOFTMAX: "d"}}).close()
    with pytest.raises(SystemExit, match="is finished yet; 1 not finished"):
        printed(monkeypatch, capsys, tmp_path / "s")
    Session.create(tmp_path / "none", {"problems": {}}).close()
    with pytest.raises(SystemExit, match="no problem was admitted"):
        printed(monkeypatch, capsys, tmp_path / "none")
