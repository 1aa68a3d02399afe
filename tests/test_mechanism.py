"""Mechanisms: every survivor of a protocol fails at one step, and the shares add up."""

import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from kernelassay import cell
from kernelassay.analysis.audit import audit_sessions
from kernelassay.analysis.explain import explain
from kernelassay.analysis.mechanism import (
    LOST,
    MASKED,
    MECHANISMS,
    NOT_INFECTED,
    OPEN,
    REJECTED,
    TOLERATED,
    Tally,
    fates,
    survival,
)
from kernelassay.analysis.score import mutant_facts, problem_facts, score
from kernelassay.cli import invoke
from kernelassay.matrix import load
from kernelassay.oracle import AcceptanceRule
from kernelassay.protocols import CURRENT, V01
from kernelassay.report.tables import print_mechanisms
from tests.made_session import OFFICIAL, SHAPE, made


def changed(store, name, input_id, **columns):
    """One stored cell with other values."""
    table = store.read_cells("suite/p", input_id)
    rows = [r | columns if r["candidate"] == name else r for r in table.to_pylist()]
    store.write_cells("suite/p", input_id, table.from_pylist(rows, schema=table.schema))


def fate(store, name, protocol=V01):
    (matrix,) = load(store)
    return fates(matrix, protocol)[matrix.index[name]]


def test_a_survivor_fails_at_one_step(tmp_path):
    store = made(tmp_path / "s")
    changed(store, "ab03", OFFICIAL[2], infected=True)
    assert fate(store, "aa01") == REJECTED
    assert fate(store, "aa02") == NOT_INFECTED
    assert fate(store, "ab03") == MASKED
    assert fate(store, "ad06") == TOLERATED
    assert fate(store, "ad06", CURRENT) == REJECTED


def test_only_the_inputs_of_the_protocol_matter(tmp_path):
    store = made(tmp_path / "s")
    changed(store, "ac05", "ramp-s1", infected=True, propagated=True)
    assert fate(store, "ac05") == NOT_INFECTED


def test_a_checker_that_poisons_sees_elements_that_are_zero_to_others(tmp_path):
    store = made(tmp_path / "s")
    changed(store, "ab03", OFFICIAL[0], infected=True, unwritten=1, poisoned_out_nan=1)
    lets_nan_pass = AcceptanceRule(1e-2, nonfinite="ignored")
    poisoning = replace(V01, default=lets_nan_pass, view="poisoned")
    assert fate(store, "ab03") == MASKED
    assert fate(store, "ab03", poisoning) == TOLERATED


@pytest.mark.parametrize("kind", ["implied", "lost"])
def test_a_cell_that_is_missing_leaves_the_mechanism_open(tmp_path, kind):
    store = made(tmp_path / "s", **{kind: {("aa02", OFFICIAL[1]), ("aa01", OFFICIAL[1])}})
    assert fate(store, "aa02") == {"implied": OPEN, "lost": LOST}[kind]
    assert fate(store, "aa01") == REJECTED  # on another input
    matrices = load(store)
    tally = survival(matrices, list(problem_facts(matrices[0], (), 1e-2)), V01).all
    assert (tally.witnessed, tally.detected) == (6, 1)
    assert tally.open.count == (kind == "implied")
    assert tally.lost == (kind == "lost")
    assert sum(share.count for share in tally.mechanisms.values()) == tally.survivors


@pytest.mark.parametrize("protocol", [V01, CURRENT])
def test_groups_add_up_to_what_the_score_misses(tmp_path, protocol):
    store = made(tmp_path / "s", problems=("suite/p", "suite/q"))
    changed(store, "ab03", OFFICIAL[2], infected=True)
    matrices = load(store)
    facts = mutant_facts(matrices, (protocol,), 1e-2)
    found = survival(matrices, facts, protocol)
    found.check(score(matrices, facts, protocol, 1e-2))
    assert sum(share.rate for share in found.all.mechanisms.values()) == pytest.approx(1.0)
    assert set(found.by_rule) == {fact.rule for fact in facts if fact.witnessed}
    assert found.by_family["semantic"] == Tally.of(())


def test_groups_that_do_not_add_up_are_noticed(tmp_path):
    (matrix,) = load(made(tmp_path / "s"))
    facts = mutant_facts((matrix,), (V01,), 1e-2)
    found = survival((matrix,), facts, V01)
    scored = score((matrix,), facts, V01, 1e-2)
    short = replace(found, by_rule=dict(list(found.by_rule.items())[1:]))
    with pytest.raises(AssertionError):
        short.check(scored)
    with pytest.raises(AssertionError):
        survival((matrix,), facts[1:], V01).check(scored)


def test_an_audit_and_an_explanation_tell_the_same(tmp_path):
    store = made(tmp_path / "s")
    result = audit_sessions([store], (V01, CURRENT), 1e-2)
    (matrix,) = load(store)
    for protocol in (V01, CURRENT):
        told = []
        for name in (f.id for f in mutant_facts((matrix,), (), 1e-2) if f.witnessed):
            verdicts = {v.protocol: v for v in explain([store], name, 1e-2).protocols}
            told.append(verdicts[protocol.name].reason)
        counts = result.mechanisms[protocol.name].all.mechanisms
        assert {m: told.count(m) for m in MECHANISMS} == {m: counts[m].count for m in MECHANISMS}
        assert result.survivors[protocol.name] == {m: counts[m].count for m in MECHANISMS}


def test_the_audit_prints_mechanisms_by_protocol_and_family(tmp_path, capsys):
    store = made(tmp_path / "s")
    console = Console(width=150)
    print_mechanisms(console, audit_sessions([store], (CURRENT, V01), 1e-2))
    printed = capsys.readouterr().out
    assert re.search(rf"{CURRENT.name} +│ +4 │ 100.0% \(4/4\) │ 0.0% \(0/4\)", printed)
    assert f"Why survivors of {V01.name} survive" in printed
    assert re.search(r"precision +│ +1 │ .* 100.0% \(1/1\) │$", printed, re.MULTILINE)
    assert OPEN not in printed
    assert invoke(["audit", str(tmp_path / "s"), "--protocol", V01.name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["data"]["mechanisms"][V01.name]
    assert found["by_family"]["precision"]["tolerated"] == {"count": 1, "rate": 1.0, "total": 1}
    assert found["all"]["survivors"] == 5


def test_a_stop_is_no_mechanism(tmp_path):
    strays = {"aa01": {SHAPE: 1.0, OFFICIAL[0]: cell.CRASH}}
    store = made(tmp_path / "s", strays=strays)
    assert fate(store, "aa01") == REJECTED
