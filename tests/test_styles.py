"""A run chooses the styles it mutates; relaxed styles are judged by bounds of their own."""

import numpy as np
import pytest

from kernelassay import campaign as campaigns
from kernelassay import cell, gate_inputs, plan, styles
from kernelassay.analysis.audit import audit_sessions
from kernelassay.analysis.mechanism import survival
from kernelassay.analysis.score import Share, mutant_facts, score
from kernelassay.errors import UsageError
from kernelassay.execute.messages import CallInfo
from kernelassay.execute.worker import UnitResult
from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.matrix import load
from kernelassay.mutation import select
from kernelassay.plan import PlanOptions
from kernelassay.protocols import CURRENT, V01
from kernelassay.session import Session
from kernelassay.styles import STYLES
from kernelassay.suite import suite_problems
from tests.test_campaign import Silent
from tests.test_score import OFFICIAL, RACE, REFERENCE, mutant, result

CHOSEN = (OPTIMISED, "half", "fused")
EXACT = [name for name, style in STYLES.items() if not style.relaxed]
RELAXED = [name for name, style in STYLES.items() if style.relaxed]


def test_the_default_mutates_the_optimised_style_and_no_other():
    assert styles.choose(()) == (OPTIMISED,)
    assert styles.benign((OPTIMISED, PLAIN, "split", "half"), (OPTIMISED,)) == (PLAIN,)


def test_all_is_every_style_that_the_executor_runs():
    assert set(styles.choose(("all",))) == {n for n, s in STYLES.items() if "cpu" in s.executors}
    assert set(styles.choose(("all",), executor="cuda")) == set(STYLES)


def test_names_are_taken_in_one_order_and_once():
    assert styles.choose(("split", "plain", "split")) == styles.choose(("plain", "split"))


@pytest.mark.parametrize(("name", "what"), [("slpit", "split"), ("tensor_core", "cuda")])
def test_a_style_that_cannot_be_mutated_is_named_with_what_can(name, what):
    with pytest.raises(UsageError) as caught:
        styles.choose((name,))
    assert name in caught.value.what
    assert what in f"{caught.value.what} {caught.value.hint}"


def test_the_leading_style_is_no_benign_variant_of_itself():
    for names in (EXACT, ["split"], ["split", OPTIMISED]):
        chosen = styles.choose(names)
        available = (PLAIN, OPTIMISED, "split", "half")
        leading = styles.mutated(available, chosen)[0]
        assert leading not in styles.benign(available, chosen)


def test_a_relaxed_style_is_never_a_benign_variant():
    assert RELAXED
    assert not set(styles.benign(tuple(STYLES), tuple(STYLES))) & set(RELAXED)


# -- relaxed styles in a plan and in a matrix ---------------------------------------------------


def call_record(*names):
    info = CallInfo("k00", "matmul", dict.fromkeys((OPTIMISED, *RELAXED), ""), ("mm",))
    return plan._call_record(info, names)


def unit(error, findings=()):
    done = UnitResult()
    done.fixed = [
        result("original/k00/optimised", "i"),
        result("original/k00/half", "i", error, infected=True, findings=findings),
        result("control/zeros", "i", -REFERENCE),
    ]
    return done


@pytest.mark.parametrize(
    ("error", "findings", "reason"),
    [(4e-2, (), "strays"), (0.0, RACE, "race-shared"), (5e-3, (), "")],
)
def test_a_relaxed_style_past_its_bound_leaves_the_call_alone(error, findings, reason):
    record = call_record(OPTIMISED, "half")
    gate_inputs._drop_strays([record], unit(error, findings))
    assert record["styles"] == ([OPTIMISED] if reason else [OPTIMISED, "half"])
    assert reason in record["not_admitted"].get("half", "")


def test_the_correct_kernels_of_a_relaxed_style_do_not_spoil_an_input():
    spoiled = unit(4e-2)
    assert [c.candidate for c in gate_inputs._correct(spoiled)] == ["original/k00/optimised"]
    assert gate_inputs._relaxed_errors(spoiled)["half"] == pytest.approx(2e-2)


@pytest.fixture
def relaxed_session(tmp_path):
    """One exact and one half mutant, equally wrong, where the half original strays too."""

    def make(original, wrong):
        store = Session.create(tmp_path / "s", {"problems": {"suite/p": "d"}, "identity": "nvrtc"})
        strays = float(original / (1 + REFERENCE).min())
        facts = {
            "group": "official",
            "valid": True,
            "reason": "",
            "benign_worst": 0.0,
            "reference_error": 0.0,
            "style_worst": {"half": strays},
        }
        call = {
            "id": "k00",
            "template": "matmul",
            "styles": [OPTIMISED, "half"],
            "not_admitted": {},
        }
        made = {
            "problem": {"id": "suite/p", "official_shape": True},
            "refused": "",
            "calls": [{**call, "styles": [OPTIMISED, "half"]}],
            "inputs": [{"id": name, **facts} for name in OFFICIAL],
            "mutants": [mutant("exact"), {**mutant("rounded"), "style": "half"}],
            "benign": [],
        }
        store.write_plan("suite/p", made)
        for name in OFFICIAL:
            rows = [
                result("original/k00/optimised", name, infected=True),
                result("original/k00/half", name, original, infected=True),
                result("control/forced-failure", name, 10.0),
                result("control/nan", name, np.nan),
                result("exact", name, wrong),
                result("rounded", name, wrong),
            ]
            store.write_cells("suite/p", name, cell.table(rows))
        store.close()
        return load(store)

    return make


def test_a_mutant_of_a_relaxed_style_is_judged_where_its_own_original_is_sound(relaxed_session):
    matrices = relaxed_session(original=1e-3, wrong=0.1)
    loose = {f.id: f.witnessed for f in mutant_facts(matrices, (V01,), 1e-2)}
    tight = {f.id: f.witnessed for f in mutant_facts(matrices, (V01,), 1e-4)}
    assert loose == {"exact": True, "rounded": True}
    assert tight == {"exact": True, "rounded": False}


def test_a_protocol_that_rejects_a_relaxed_original_is_not_scored_on_its_mutants(relaxed_session):
    matrices = relaxed_session(original=1e-3, wrong=0.1)
    facts = mutant_facts(matrices, (V01, CURRENT), 1e-2)
    loose, tight = (score(matrices, facts, protocol, 1e-2) for protocol in (V01, CURRENT))
    assert (loose.detection.total, loose.set_aside) == (2, 0)
    assert (tight.detection.total, tight.set_aside) == (1, 1)
    assert set(tight.by_style) == {OPTIMISED}
    tally = survival(matrices, facts, CURRENT).all
    assert (tally.witnessed, tally.set_aside) == (2, 1)


def test_an_exact_original_that_is_rejected_is_counted(relaxed_session):
    matrices = relaxed_session(original=0.0, wrong=0.1)
    matrix = matrices[0]
    matrix.columns["seen_critical_tolerance"][matrix.index["original/k00/optimised"]] = 1.0
    assert score(matrices, mutant_facts(matrices, (V01,), 1e-2), V01, 1e-2).originals == Share(1, 1)


# -- a whole run --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of one problem in three styles: one exact, one relaxed, one that overlaps two calls."""
    problems = tuple(p for p in suite_problems() if p.id == "suite/linear_bias_relu")
    options = PlanOptions(
        select(("drop-bias", "loop-start-plus-one")),
        quick=True,
        backend=campaigns.identity_backend(),
        max_inputs=6,
        styles=styles.choose(CHOSEN),
    )
    run = campaigns.Campaign(problems, options, 1)
    session = Session.create(tmp_path_factory.mktemp("styles") / "s", run.manifest())
    try:
        campaigns.run(run, session, Silent())
    finally:
        session.close()
    return session


def test_every_chosen_style_has_an_original_and_mutants(finished):
    (made,) = finished.plans()
    assert finished.manifest["styles"] == list(CHOSEN)
    heavy, light, both = made["calls"]
    assert heavy["styles"] == [OPTIMISED, "half"]
    assert light["styles"] == [OPTIMISED]
    assert both["styles"] == ["fused"]
    assert set(heavy["nodes"]) | set(light["nodes"]) <= set(both["nodes"])
    assert {m["style"] for m in made["mutants"]} == set(CHOSEN)
    cells = finished.read_cells("suite/linear_bias_relu", "official-0").to_pylist()
    names = {row["candidate"] for row in cells}
    for call in made["calls"]:
        assert {f"original/{call['id']}/{style}" for style in call["styles"]} <= names


def test_an_audit_accounts_for_every_style(finished):
    result = audit_sessions([finished], (V01, CURRENT), 1e-2)
    assert set(result.account_by_style) == set(CHOSEN)
    total = sum(a.generated for a in result.account_by_style.values())
    assert total == result.account.generated
    assert all(a.witnessed for a in result.account_by_style.values())
    assert result.false_findings.count == 0
    assert {s for c in result.coverage if c.generated for s in c.styles} == set(CHOSEN)


def test_the_half_original_rounds_and_leaves_the_inputs_valid(finished):
    (matrix,) = load(finished)
    row = matrix.index["original/k00_matmul/half"]
    exact = matrix.columns["exact_critical_tolerance"]
    assert exact[row].max() > 10 * exact[matrix.index["original/k00_matmul/optimised"]].max()
    assert matrix.valid_at(1e-4).sum() > (~np.isnan(matrix.limits(1e-4, "half"))).sum()
