"""Anatomy: patterns partition the witnessed mutants, and subsumption is an order of kill rows."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from kernelassay.analysis.anatomy import anatomy, missed_by, patterns, transform_family
from kernelassay.analysis.score import MutantFacts, Share
from kernelassay.analysis.subsumption import firsts, minimal, subsuming
from kernelassay.cli import invoke
from kernelassay.errors import ControlError, NothingToTestError, SessionError
from kernelassay.protocols import CURRENT, V01
from tests.made_session import GROUPS, PRINTED, SHAPE, STRAYS, made

kill_rows = arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=8))


@given(kill_rows)
def test_subsumption_is_a_partial_order_of_the_kinds_of_row(rows):
    below = subsuming(rows)
    killed = rows.any(axis=1)
    assert (np.diag(below) == killed).all()
    for a, b in np.argwhere(below):
        assert (rows[b] | ~rows[a]).all()
        assert not below[b, a] or (rows[a] == rows[b]).all()
        for c in np.flatnonzero(below[b]):
            assert below[a, c]


@given(kill_rows)
def test_a_minimal_row_is_subsumed_by_its_equals_alone_and_some_minimal_row_subsumes_each(rows):
    below, least = subsuming(rows), minimal(rows)
    for row in np.flatnonzero(least):
        assert (rows[below[:, row]] == rows[row]).all()
    for row in np.flatnonzero(rows.any(axis=1)):
        assert below[least, row].any()
    assert not least[~rows.any(axis=1)].any()


@given(kill_rows, st.randoms(use_true_random=False))
def test_what_is_minimal_does_not_depend_on_the_order(rows, random):
    order = random.sample(range(len(rows)), len(rows))
    assert (minimal(rows)[order] == minimal(rows[order])).all()


@given(kill_rows)
def test_the_firsts_are_one_row_of_each_kind(rows):
    kinds = firsts(rows)
    assert len({tuple(row) for row in rows[kinds].tolist()}) == len(kinds)
    assert {tuple(row) for row in rows.tolist()} == {tuple(row) for row in rows[kinds].tolist()}
    assert all(not (rows[:row] == rows[row]).all(axis=1).any() for row in kinds)


def test_no_rows_have_no_kinds():
    for shape in ((0, 0), (0, 3)):
        assert firsts(np.zeros(shape, dtype=bool)).size == 0
        assert minimal(np.zeros(shape, dtype=bool)).size == 0


def fact(number, verdicts):
    detected = {f"p{index}": bool(hit) for index, hit in enumerate(verdicts)}
    texts = (f"m{number}", "p", "k", "t", "s", "boundary", "r")
    return MutantFacts(*texts, True, False, False, True, True, detected)


@given(
    st.integers(0, 4).flatmap(lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n)))
)
def test_patterns_partition_the_mutants(verdicts):
    names = tuple(f"p{index}" for index in range(len(verdicts[0]) if verdicts else 0))
    facts = [fact(number, row) for number, row in enumerate(verdicts)]
    found = patterns(facts, names)
    assert sum(pattern.mutants.count for pattern in found) == len(facts)
    assert len({pattern.missed_by for pattern in found}) == len(found)
    for pattern in found:
        assert pattern.mutants.total == len(facts)
        assert pattern.mutants.count == sum(
            missed_by(one, names) == pattern.missed_by for one in facts
        )


def test_who_misses_together(tmp_path):
    result = anatomy([made(tmp_path / "s")], 1e-2)
    assert result.protocols == (V01.name, CURRENT.name)
    assert result.witnessed == Share(6, 9)
    assert {p.missed_by: p.mutants for p in result.patterns} == {
        (V01.name, CURRENT.name): Share(4, 6),
        (V01.name,): Share(1, 6),
        (): Share(1, 6),
    }
    assert result.core.members == tuple(("suite/p", m) for m in ("aa02", "ab03", "ab04", "ac05"))
    assert result.core.by_family["boundary"] == Share(4, 5)
    assert result.core.by_problem == {"suite/p": Share(4, 6)}
    assert result.missed_rules.by_every == {"tail-drop": 1}
    assert result.missed_rules.by_protocol[V01.name] == {"fp16-load-temp": 1, "tail-drop": 1}
    assert result.missed_rules.rules == 3


def test_what_only_one_group_kills(tmp_path):
    rows = anatomy([made(tmp_path / "s")], 1e-2).rows
    groups = {g.group: (g.inputs, g.kills.count, g.alone.count) for g in rows.groups}
    assert groups == {"official": (5, 1, 0), "targeted": (2, 5, 3), "shape": (1, 3, 1)}
    assert rows.several == Share(2, 6)
    families = {g.group: (g.inputs, g.kills.count, g.alone.count) for g in rows.transforms}
    assert families == {"targeted: huge": (1, 4, 2), "targeted: ramp": (1, 2, 1)}


def test_minimal_mutants_and_the_scores_on_them(tmp_path):
    result = anatomy([made(tmp_path / "s", ("suite/p", "suite/q"))], 1e-2)
    rows = result.rows
    # ab03 and ab04 are of one kind; aa01 and aa02 are subsumed.
    assert rows.minimal == Share(8, 12)
    assert rows.disjoint == Share(6, 12)
    assert [mutant for problem, mutant in rows.members if problem == "suite/q"] == [
        "ab03",
        "ac05",
        "ad06",
    ]
    counts = [(p.problem, p.mutants, p.kinds, p.minimal, p.disjoint) for p in rows.by_problem]
    assert counts == [("suite/p", 6, 5, 4, 3), ("suite/q", 6, 5, 4, 3)]
    loose, tight = rows.scores
    assert (loose.all, loose.minimal, loose.disjoint) == (Share(2, 12), Share(0, 8), Share(0, 6))
    assert (tight.all, tight.minimal, tight.disjoint) == (Share(4, 12), Share(2, 8), Share(2, 6))
    assert (rows.without_minimal, rows.rules) == ({"tail-drop": 2}, 3)


def test_implied_cells_leave_the_rows_open_and_the_rest_stands(tmp_path, capsys):
    whole = anatomy([made(tmp_path / "w")], 1e-2)
    made(tmp_path / "s", implied={("aa01", SHAPE)})
    assert invoke(["anatomy", str(tmp_path / "s"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["rows"] is None
    assert data["no_rows"].startswith("1 of 6 witnessed mutants")
    assert "--cells rows" in data["hint"]
    assert data["core"] == whole.to_json()["core"]
    assert invoke(["anatomy", str(tmp_path / "s")]) == 0
    printed = capsys.readouterr().out
    assert "Who misses together" in printed and "--cells rows" in printed


def test_a_mutant_that_lost_a_cell_is_left_out_of_what_rows_tell(tmp_path):
    result = anatomy([made(tmp_path / "s", lost={("aa01", SHAPE), ("ab03", "official-0")})], 1e-2)
    assert result.unscored == 1  # ab03: no protocol rejected it, but one cell is unknown
    assert result.core.mutants == Share(3, 5)
    assert result.rows.mutants == Share(4, 6)


def test_a_session_without_a_witness_has_an_empty_anatomy(tmp_path, capsys):
    strays = {name: {} for name in STRAYS}
    result = anatomy([made(tmp_path / "s", strays=strays)], 1e-2)
    assert (result.witnessed, result.patterns) == (Share(0, 9), ())
    assert (result.rows.minimal, result.rows.several) == (Share(0, 0), Share(0, 0))
    assert invoke(["anatomy", str(tmp_path / "s")]) == 0
    assert "every protocol misses: - (0/0)" in capsys.readouterr().out


def test_a_misbehaving_control_vetoes_the_anatomy(tmp_path):
    store = made(tmp_path / "s")
    for name in GROUPS:
        table = store.read_cells("suite/p", name)
        rows = table.to_pylist()
        good = next(r for r in rows if r["candidate"] == "original/k00/optimised")
        bad = [
            {**good, "candidate": "control/nan"} if "/nan" in r["candidate"] else r for r in rows
        ]
        store.write_cells("suite/p", name, table.from_pylist(bad, schema=table.schema))
    with pytest.raises(ControlError, match="control/nan does not stray"):
        anatomy([store], 1e-2)


def test_refused_and_unfinished_problems_are_told(tmp_path):
    store = made(tmp_path / "s", ("suite/p", "suite/q", "suite/r"))
    store.write_plan(
        "suite/q", {"problem": {"id": "suite/q"}, "refused": "no", "inputs": [], "mutants": []}
    )
    store.cell_path("suite/r", SHAPE).unlink()
    with pytest.raises(SessionError, match="not finished"):
        anatomy([store], 1e-2)
    result = anatomy([store], 1e-2, partial=True)
    assert (result.problems, result.refused, result.unfinished) == (1, ("suite/q",), ("suite/r",))
    store.cell_path("suite/p", SHAPE).unlink()
    with pytest.raises(NothingToTestError):
        anatomy([store], 1e-2, partial=True)


@pytest.mark.parametrize(
    ("transform", "family"),
    [
        ("huge-3e5", "huge"),
        ("near-zero-1e-3", "near-zero"),
        ("edge-spikes-100", "edge-spikes"),
        ("sign-mixed", "sign-mixed"),
        ("sorted-descending", "sorted-descending"),
        ("official", "official"),
    ],
)
def test_a_transform_family_is_its_name_without_the_magnitude(transform, family):
    assert transform_family(transform) == family


def test_the_printed_anatomy(tmp_path, capsys):
    made(tmp_path / "s")
    assert invoke(["anatomy", str(tmp_path / "s")]) == 0
    assert capsys.readouterr().out == (PRINTED / "anatomy.txt").read_text()
