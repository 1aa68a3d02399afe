"""A lazy run leaves out cells, and no verdict: protocols and witnesses are those of whole rows."""

import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay import cell
from kernelassay.analysis.audit import audit_sessions
from kernelassay.analysis.mechanism import survival
from kernelassay.analysis.score import mutant_facts, score, unproven
from kernelassay.analysis.verdicts import rejects
from kernelassay.cell import Cell
from kernelassay.cli import invoke
from kernelassay.errors import SessionError
from kernelassay.inputs import verified_inputs
from kernelassay.kernel import Finding
from kernelassay.lazy import Ledger, held
from kernelassay.matrix import of_tables
from kernelassay.oracle import AcceptanceRule, grade
from kernelassay.protocols import CURRENT, DEFAULT, V01, VERIFIED, VERIFIED_INPUTS_AT_V01
from kernelassay.protocols.protocol import Protocol
from kernelassay.session import Session, inputs_of
from tests.test_campaign import campaign, measure

COMPARE = Path(__file__).parent.parent / "benchmarks" / "compare_sessions.py"
OFFICIAL = V01.inputs
VERIFIED_ONLY = VERIFIED.inputs[1:]
TARGETED = ("t0", "t1", "t2")
RACE = (Finding("race-shared", 1, ""),)
REFERENCE = np.array([1.0])
# Around the tolerances 1e-4, 1e-3 and 1e-2, where an error of e has the critical tolerance e / 2.
ERRORS = (0.0, 1e-4, 1e-3, 1e-2, 3e-2, np.nan)
VERDICTS = [grade(REFERENCE + error, REFERENCE) for error in ERRORS]


def mutant(number, style="optimised"):
    names = {"call": "k00", "rule": "guard-delete", "family": "boundary", "status": "distinct"}
    return {"id": f"m{number}", "style": style, "unsupported": "", **names}


def planned(inputs, unfit=(), half_worst=()):
    """A plan with inputs in some order: on some a reference is not finite, or halves stray."""
    return {
        "problem": {"id": "suite/p"},
        "calls": [{"id": "k00", "template": "softmax", "styles": ["optimised"]}],
        "benign": [],
        "mutants": [mutant(n, "half" if n > 3 else "optimised") for n in range(6)],
        "inputs": [
            {
                "id": name,
                "valid": name not in unfit,
                "digest": "d",
                "benign_worst": 0.0,
                "reference_error": None if name in unfit else 0.0,
                "style_worst": {"half": None if name in half_worst else 0.0},
            }
            for name in inputs
        ],
    }


def run(name, input_id, outcome=cell.OK, seen=0, exact=0, infected=True, findings=()):
    views = (VERDICTS[seen], VERDICTS[seen], VERDICTS[exact]) if outcome == cell.OK else [None] * 3
    return Cell(name, input_id, outcome, "", infected, infected, 0, findings, "", *views)


def fixed(input_id):
    yield run("original/k00/optimised", input_id)
    for name in ("nan", "forced-failure"):
        yield run(f"control/{name}", input_id, seen=-1, exact=-1)


def whole(plan, cells):
    """The tables of a run of whole rows: all candidates on all valid inputs."""
    return {
        record["id"]: cell.table(
            [*fixed(record["id"]), *(c for c in cells if c.input == record["id"])]
        )
        for record in inputs_of(plan)
    }


def lazily(plan, rows, protocols=DEFAULT):
    """The tables that a lazy run leaves of the same cells."""
    tables = {}
    ledger = Ledger(plan, tables.__getitem__, protocols)
    for name, table in rows.items():
        reasons = ledger.implied(name)
        found = [Cell.from_row(row) for row in table.to_pylist()]
        tables[name] = cell.table(
            Cell.implied(c.candidate, name, reasons[c.candidate]) if c.candidate in reasons else c
            for c in found
        )
    return tables


outcomes = st.one_of(
    st.just((cell.OK, 0, 0)),
    st.builds(lambda e: (cell.OK, e, e), st.integers(0, len(ERRORS) - 1)),
    st.tuples(st.just(cell.OK), *[st.integers(0, len(ERRORS) - 1)] * 2),
    st.sampled_from([(stop, 0, 0) for stop in (*cell.STOPS, cell.INFRASTRUCTURE)]),
)


@st.composite
def rows(draw):
    """A plan with its inputs in any order, and its whole rows."""
    inputs = draw(st.permutations((*OFFICIAL, *VERIFIED_ONLY, *TARGETED)))
    unfit = draw(st.sets(st.sampled_from((*VERIFIED_ONLY, *TARGETED))))
    if draw(st.booleans()):
        inputs = [name for name in inputs if name not in VERIFIED_ONLY]
    plan = planned(inputs, unfit, draw(st.sets(st.sampled_from(inputs))))
    cells = [
        run(m["id"], name, *draw(outcomes), draw(st.booleans()), draw(st.sampled_from([(), RACE])))
        for m in plan["mutants"]
        for name in inputs
    ]
    return plan, whole(plan, cells)


@settings(max_examples=80, deadline=None)
@given(rows())
def test_scores_buckets_and_reasons_are_those_of_whole_rows(made):
    plan, full = made
    protocols = held(plan, DEFAULT)
    complete, lazy = of_tables(plan, full), of_tables(plan, lazily(plan, full))
    for protocol in protocols:
        assert rejects(lazy, protocol).tolist() == rejects(complete, protocol).tolist()
    there, here = ([*mutant_facts((m,), protocols, 1e-2)] for m in (complete, lazy))
    for a, b in zip(there, here, strict=True):
        assert (a.id, a.witnessed, a.detected) == (b.id, b.witnessed, b.detected)
        if not a.witnessed:
            assert (a.bucket, a.infected) == (b.bucket, b.infected)
            assert b.whole
    for protocol in protocols:
        scores = [score((m,), f, protocol, 1e-2) for m, f in ((complete, there), (lazy, here))]
        assert scores[0] == scores[1]
        reasons = [survival((m,), f, protocol) for m, f in ((complete, there), (lazy, here))]
        assert reasons[0] == reasons[1]
        assert reasons[0].all.open.count == 0
        reasons[0].check(scores[0])


@settings(max_examples=60, deadline=None)
@given(rows())
def test_a_cell_is_measured_only_if_a_protocol_or_a_witness_needs_it(made):
    plan, full = made
    lazy = of_tables(plan, lazily(plan, full))
    proofs = lazy.witnessing(1e-2) | lazy.stopping(1e-2)
    for column, name in enumerate(lazy.inputs):
        for m in plan["mutants"]:
            row = lazy.index[m["id"]]
            undecided = [
                protocol
                for protocol in held(plan, DEFAULT)
                if name in (order := protocol.inputs_in(plan))
                and not any(
                    lazy.rejected_by(protocol)[row, lazy.inputs.index(before)]
                    for before in order[: order.index(name)]
                    if lazy.inputs.index(before) < column
                )
            ]
            needed = bool(undecided) or not proofs[row, :column].any()
            assert bool(lazy.implied[row, column]) != needed


@settings(max_examples=40, deadline=None)
@given(rows(), st.data())
def test_a_decision_rests_on_the_stored_cells_of_earlier_inputs_alone(made, data):
    plan, full = made
    stored = lazily(plan, full)
    names = list(stored)
    ledger = Ledger(plan, stored.__getitem__)
    for name in data.draw(st.permutations(names)):
        earlier = {other: stored[other] for other in names[: names.index(name)]}
        told = {
            row["candidate"]: row["detail"]
            for row in stored[name].to_pylist()
            if row["outcome"] == cell.IMPLIED
        }
        assert Ledger(plan, earlier.__getitem__).implied(name) == told
        assert ledger.implied(name) == told


def details(plan, *cells, inputs=OFFICIAL, protocols=DEFAULT):
    """By input, why the first mutant did not run there; the others behave."""
    others = [run(m["id"], name) for m in plan["mutants"][1:] for name in inputs]
    tables = lazily(plan, whole(plan, [*cells, *others]), protocols)
    return {
        name: row["detail"]
        for name, table in tables.items()
        for row in table.to_pylist()
        if row["candidate"] == "m0"
    }


def test_a_mutant_that_all_reject_at_once_runs_once():
    inputs = (*OFFICIAL, "t0")
    cells = [run("m0", name, seen=4, exact=4) for name in inputs]
    by_both = "rejected by kernelbench-v0.1, kernelbench on official-0"
    assert details(planned(inputs), *cells, inputs=inputs) == {
        "official-0": "",
        **dict.fromkeys(OFFICIAL[1:], by_both),
        "t0": "witnessed on official-0",
    }


def test_a_mutant_runs_until_the_last_protocol_rejects_it():
    # An error of 1e-3 is rejected at 1e-4; at 1e-2 one of 3e-2 is.
    cells = [run("m0", name, seen=2 + 2 * (name == "official-2")) for name in OFFICIAL]
    found = details(planned(OFFICIAL), *cells, protocols=(V01, CURRENT))
    assert not any(found.values())  # no output is witnessed wrong, so it runs on
    cells = [
        run("m0", name, seen=2 + 2 * (name == "official-2"), exact=2 + 2 * (name == "official-2"))
        for name in OFFICIAL
    ]
    reason = "rejected by kernelbench-v0.1 on official-2; by kernelbench on official-0"
    found = details(planned(OFFICIAL), *cells)
    assert found == {**dict.fromkeys(OFFICIAL[:3], ""), **dict.fromkeys(OFFICIAL[3:], reason)}


@pytest.mark.parametrize("stop", cell.STOPS)
def test_a_stop_is_a_rejection_and_a_proof(stop):
    inputs = ("official-0", "t0")
    cells = [run("m0", "official-0", stop), run("m0", "t0")]
    own = Protocol("own", "", "", ("official-0",), AcceptanceRule(1e-2), {})
    found = details(planned(inputs), *cells, inputs=inputs, protocols=(own,))
    assert found["t0"] == "stopped on official-0"


def test_an_infrastructure_error_rejects_and_proves_nothing():
    cells = [run("m0", name, cell.INFRASTRUCTURE) for name in OFFICIAL]
    assert not any(details(planned(OFFICIAL), *cells).values())


def test_a_protocol_without_all_of_its_inputs_needs_nothing():
    plan = planned((*OFFICIAL, "verified-x3"))
    assert held(plan, DEFAULT) == (V01, CURRENT)
    everything = planned((*OFFICIAL, *VERIFIED_ONLY))
    assert held(everything, DEFAULT) == DEFAULT


def test_the_verified_protocols_drop_an_input_whose_reference_is_not_finite():
    plan = planned((*OFFICIAL, *VERIFIED_ONLY), unfit=("verified-x-1", "official-4"))
    assert held(plan, DEFAULT) == (VERIFIED, VERIFIED_INPUTS_AT_V01)
    assert VERIFIED.inputs_in(plan) == ("official-0", "verified-x3", "verified-x0.01")
    cells = [
        run(m["id"], record["id"], seen=2 * (record["id"] == "verified-x3"))
        for m in plan["mutants"]
        for record in plan["inputs"]
    ]
    matrix = of_tables(plan, whole(plan, cells))
    mutants = matrix.rows([m["id"] for m in plan["mutants"]])
    assert not rejects(matrix, VERIFIED)[mutants].any()  # 5e-4 of 1e-3
    assert not rejects(matrix, VERIFIED_INPUTS_AT_V01)[mutants].any()
    with pytest.raises(SessionError, match="not measured: official-4"):
        rejects(matrix, V01)
    none_left = planned(VERIFIED.inputs, unfit=VERIFIED.inputs)
    assert VERIFIED.missing_in(none_left) == VERIFIED.inputs


def test_what_a_lazy_matrix_leaves_open_is_refused():
    inputs = (*OFFICIAL, "t0")
    plan = planned(inputs)
    cells = [run("m0", name, seen=4, exact=4) for name in inputs]
    others = [run(m["id"], name) for m in plan["mutants"][1:] for name in inputs]
    matrix = of_tables(plan, lazily(plan, whole(plan, [*cells, *others])))
    own = Protocol("own", "", "", ("t0",), AcceptanceRule(1e-2), {})
    with pytest.raises(SessionError, match="lazily") as refused:
        rejects(matrix, own)
    assert "--cells rows" in str(refused.value)
    assert unproven(matrix, 1e-2) == unproven(matrix, 1e-3) == []
    assert unproven(matrix, 0.5) == ["m0"]
    with pytest.raises(SessionError, match="lazily"):
        mutant_facts((matrix,), (), 0.5)


# ---- campaigns ----------------------------------------------------------------------------------

NAME = "suite/softmax_rows"
CHOSEN = {"names": (NAME,), "given": verified_inputs()}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """One small campaign measured in whole rows and lazily, the digest of the latter, images."""
    folder = tmp_path_factory.mktemp("both")
    images = folder / "images"
    measure(folder / "rows", images=images, **CHOSEN)
    digest = measure(folder / "lazy", images=images, cells="lazy", **CHOSEN)
    return folder / "rows", folder / "lazy", digest, images


def test_a_lazy_campaign_scores_as_one_of_whole_rows_with_fewer_cells(both):
    rows, lazy = (audit_sessions([Session.open(root)], None, 1e-2) for root in both[:2])
    assert [s.protocol for s in lazy.scores] == [p.name for p in DEFAULT]
    assert lazy.scores == rows.scores
    assert lazy.mechanisms == rows.mechanisms
    assert lazy.account.unobserved == rows.account.unobserved
    assert lazy.account.never_infected == rows.account.never_infected
    assert 0 < lazy.implied < rows.cells
    assert lazy.cells + lazy.implied == rows.cells
    assert rows.implied == 0


def test_what_both_campaigns_measured_is_equal(both, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(COMPARE), *map(str, both[:2])])
    with pytest.raises(SystemExit) as ending:
        runpy.run_path(str(COMPARE), run_name="__main__")
    printed = capsys.readouterr().out
    assert ending.value.code == 0
    assert " 0 differ" in printed
    assert "are implied in one of them" in printed


def test_several_lanes_measure_a_lazy_campaign_alike(both, tmp_path):
    measured = measure(tmp_path / "s", images=both[3], cells="lazy", jobs=3, **CHOSEN)
    assert measured == both[2]


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("units", [1, 4])
def test_an_interrupted_lazy_campaign_resumes_to_the_same_digest(
    both, tmp_path, monkeypatch, units
):
    root, written = tmp_path / "s", []
    write_cells = Session.write_cells

    def write_or_end(self, problem, input_id, cells):
        if len(written) == units:
            raise Interrupted
        written.append(input_id)
        write_cells(self, problem, input_id, cells)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "write_cells", write_or_end)
        with pytest.raises(Interrupted):
            measure(root, images=both[3], cells="lazy", **CHOSEN)
    moved = shutil.move(root, tmp_path / "elsewhere")
    assert measure(Path(moved), images=both[3], cells="lazy", **CHOSEN) == both[2]


def test_units_that_are_lost_from_the_middle_are_decided_as_before(both, tmp_path):
    root = tmp_path / "s"
    shutil.copytree(both[1], root)
    session = Session.open(root)
    (plan,) = session.plans()
    names = [record["id"] for record in inputs_of(plan)]
    session.cell_path(NAME, names[2]).unlink()
    damaged = session.cell_path(NAME, names[6])
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert measure(root, images=both[3], cells="lazy", **CHOSEN) == both[2]


def test_a_lazy_session_is_not_taken_up_in_whole_rows(both, tmp_path):
    root = tmp_path / "s"
    shutil.copytree(both[1], root)
    with pytest.raises(SessionError, match="differs in: cells, protocols"):
        Session.create(root, campaign(**CHOSEN).manifest())


def test_the_replay_of_an_implied_cell_runs_it(both, capsys):
    rows, lazy = (Session.open(root) for root in both[:2])
    (plan,) = lazy.plans()
    name = list(inputs_of(plan))[-1]["id"]
    found = lazy.read_cells(NAME, name).to_pylist()
    row = next(row for row in found if row["outcome"] == cell.IMPLIED)
    assert invoke(["replay", str(both[1]), row["candidate"], name]) == 0
    printed = capsys.readouterr().out
    assert f"the session did not measure this cell: {row['detail']}" in printed
    measured = {r["candidate"]: r for r in rows.read_cells(NAME, name).to_pylist()}
    assert f"output digest: {measured[row['candidate']]['output_digest'] or '-'}" in printed


def test_an_audit_says_what_is_implied_and_what_it_leaves_open(both, capsys):
    lazy = audit_sessions([Session.open(both[1])], None, 1e-2)
    assert invoke(["audit", str(both[1])]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{lazy.cells} cells measured, {lazy.implied} implied" in printed
    assert "measured lazily" in printed
    (account,) = (d for d in lazy.denominators if d.tolerance == 1e-2)
    assert account.account == lazy.account


def test_what_did_not_run_is_missing_and_not_dropped_by_a_checker():
    everything = (*OFFICIAL, *VERIFIED_ONLY)
    plan = planned(everything, unfit=VERIFIED_ONLY[:1])
    assert VERIFIED in held(plan, DEFAULT)
    assert VERIFIED.inputs_in(plan) == tuple(n for n in VERIFIED.inputs if n != VERIFIED_ONLY[0])
    lost = {**plan["inputs"][-1], "valid": False, "digest": ""}
    without = {**plan, "inputs": [*plan["inputs"][:-1], lost]}
    assert VERIFIED.missing_in(without) == (VERIFIED_ONLY[-1],)
    assert VERIFIED not in held(without, DEFAULT)
