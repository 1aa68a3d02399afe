"""A session survives interruption, refuses what it cannot read, and never loses a cell."""

import json

import numpy as np
import pyarrow as pa
import pytest

from kernelassay import cell
from kernelassay.cell import Cell
from kernelassay.errors import SessionError
from kernelassay.kernel import Finding
from kernelassay.oracle import grade
from kernelassay.session import Session, slug, write_whole

MANIFEST = {"problems": {"suite/a": "d"}, "rules": ["r"], "machine": {"cpu": "x"}}


def example_cell(candidate="m", outcome=cell.OK):
    verdict = grade(np.array([1.0, np.inf]), np.array([1.5, np.inf]))
    graded = verdict if outcome == cell.OK else None
    finding = Finding("race-shared", 3, "block 0")
    return Cell(
        candidate, "i", outcome, "", True, False, 1, (finding,), "ab", graded, graded, graded
    )


def plan(valid=True):
    inputs = [{"id": "i", "valid": valid}]
    return {"problem": {"id": "suite/a"}, "refused": "", "inputs": inputs, "mutants": []}


def make(root, cells):
    session = Session.create(root, MANIFEST)
    session.write_plan("suite/a", plan())
    session.write_cells("suite/a", "i", cell.table(cells))
    session.close()
    return session


@pytest.mark.parametrize("outcome", cell.OUTCOMES)
def test_a_cell_survives_storage(tmp_path, outcome):
    original = example_cell(outcome=outcome)
    session = make(tmp_path / "s", [original])
    (row,) = session.read_cells("suite/a", "i").to_pylist()
    assert Cell.from_row(row) == original


def test_the_digest_ignores_order_machine_and_time_but_no_verdict(tmp_path):
    a, b = example_cell("a"), example_cell("b")
    first = make(tmp_path / "1", [a, b])
    second = make(tmp_path / "2", [b, a])
    third = make(tmp_path / "3", [a, example_cell("b", cell.CRASH)])
    assert first.digest() == second.digest()
    assert first.digest() != third.digest()


def test_a_refused_plan_has_a_digest_though_its_valid_inputs_were_never_run(tmp_path):
    store = Session.create(tmp_path / "s", MANIFEST)
    refused = {**plan(), "refused": "the original does not compile"}
    store.write_plan("suite/a", refused)
    assert any(record["valid"] for record in refused["inputs"])
    assert store.digest()
    store.close()


def test_another_plan_is_refused(tmp_path):
    make(tmp_path / "s", [])
    with pytest.raises(SessionError, match=r"another plan .*rules"):
        Session.create(tmp_path / "s", {**MANIFEST, "rules": ["other"]})


def test_the_same_plan_on_another_machine_resumes(tmp_path):
    make(tmp_path / "s", [])
    session = Session.create(tmp_path / "s", {**MANIFEST, "machine": {"cpu": "y"}})
    assert session.has_cells("suite/a", "i")
    session.close()


def test_two_runs_on_one_directory_are_refused(tmp_path):
    session = Session.create(tmp_path / "s", MANIFEST)
    with pytest.raises(SessionError, match="another run"):
        Session.create(tmp_path / "s", MANIFEST)
    session.close()
    Session.create(tmp_path / "s", MANIFEST).close()


def test_a_session_of_another_version_is_refused(tmp_path):
    make(tmp_path / "s", [])
    path = tmp_path / "s" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(SessionError, match="format 99"):
        Session.open(tmp_path / "s")


def test_a_foreign_directory_is_not_written_to(tmp_path):
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(SessionError, match="not empty"):
        Session.create(tmp_path, MANIFEST)


def test_a_directory_without_manifest_is_no_session(tmp_path):
    with pytest.raises(SessionError, match="not a session"):
        Session.open(tmp_path)


@pytest.mark.parametrize("damage", [{}, {"problems": ["suite/a"]}])
def test_a_manifest_without_problems_is_named(tmp_path, damage):
    make(tmp_path / "s", []).close()
    path = tmp_path / "s" / "manifest.json"
    kept = {key: value for key, value in json.loads(path.read_text()).items() if key != "problems"}
    path.write_text(json.dumps({**kept, **damage}))
    with pytest.raises(SessionError, match="does not name the selected problems"):
        Session.open(tmp_path / "s").unfinished()


@pytest.mark.parametrize("keep", [0, 10, -4])
def test_a_truncated_cell_file_is_set_aside_and_counts_as_missing(tmp_path, keep):
    session = make(tmp_path / "s", [example_cell()])
    path = session.cell_path("suite/a", "i")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SessionError, match="damaged"):
        session.read_cells("suite/a", "i")
    assert not session.has_cells("suite/a", "i")
    assert path.with_suffix(".damaged").exists()
    with pytest.raises(SessionError, match="no cells"):
        session.read_cells("suite/a", "i")


@pytest.mark.parametrize("keep", [0, 10, -4])
def test_a_truncated_file_of_the_gate_is_set_aside_and_counts_as_missing(tmp_path, keep):
    session = make(tmp_path / "s", [example_cell()])
    digest = session.digest()
    assert session.read_gate("suite/a") is None
    session.write_gate("suite/a", cell.table([example_cell("b")]))
    assert session.read_gate("suite/a").to_pylist() == [example_cell("b").row()]
    assert session.digest() == digest
    (path,) = (tmp_path / "s" / "gate").iterdir()
    path.write_bytes(path.read_bytes()[:keep])
    assert session.read_gate("suite/a") is None
    assert path.with_suffix(".damaged").exists()
    assert session.read_gate("suite/a") is None


def test_a_file_of_the_gate_that_holds_no_cells_is_set_aside_and_counts_as_missing(tmp_path):
    session = make(tmp_path / "s", [])
    session.write_gate("suite/a", pa.table({"candidate": ["b"], "outcome": ["ok"]}))
    assert session.read_gate("suite/a") is None
    assert [path.suffix for path in (tmp_path / "s" / "gate").iterdir()] == [".damaged"]


def test_a_damaged_plan_is_named(tmp_path):
    session = make(tmp_path / "s", [])
    session.plan_path("suite/a").write_text('{"problem": ')
    with pytest.raises(SessionError, match="damaged plan"):
        session.plans()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "f"
    write_whole(path, b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SessionError, match="disk is full"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_distinct_ids_have_distinct_file_names():
    ids = ["a/b", "a+b", "a b", "a=1/official", "a=1+official"]
    assert len({slug(name) for name in ids}) == len(ids)


def test_a_manifest_from_before_lazy_runs_is_one_of_whole_rows_at_own_sizes(tmp_path):
    session = make(tmp_path / "s", [example_cell()])
    path = tmp_path / "s" / "manifest.json"
    since = {"cells": "rows", "protocols": None, "scale": "own", "sample": None}
    older = {k: v for k, v in session.manifest.items() if k not in since}
    path.write_text(json.dumps(older))
    Session.create(tmp_path / "s", {**MANIFEST, **since}).close()
    with pytest.raises(SessionError, match="differs in: cells, protocols"):
        Session.create(tmp_path / "s", {**MANIFEST, "cells": "lazy", "protocols": ["p"]})


def test_an_implied_cell_claims_nothing(tmp_path):
    implied = Cell.implied("m", "i", "witnessed on j")
    (row,) = make(tmp_path / "s", [implied]).read_cells("suite/a", "i").to_pylist()
    assert Cell.from_row(row) == implied
    assert (row["infected"], row["propagated"], row["seen_count"]) == (None, None, None)
