"""A sample of mutants is uniform, the same everywhere, and chosen before anything is compiled."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from kernelassay import campaign as campaigns
from kernelassay import gate
from kernelassay.analysis.audit import audit_sessions, sample_share
from kernelassay.analysis.score import Share
from kernelassay.mutation import select
from kernelassay.plan import PlanOptions
from kernelassay.population import sampled
from kernelassay.report.tables import print_audit
from kernelassay.session import Session
from kernelassay.suite import suite_problems
from tests.test_campaign import Silent

IDS = st.lists(st.text("0123456789abcdef", min_size=12, max_size=12), unique=True)


@settings(deadline=None)
@given(ids=IDS, size=st.integers(1, 30), data=st.data())
def test_a_sample_depends_on_the_set_of_ids_alone_and_is_part_of_a_larger_one(ids, size, data):
    found = sampled(ids, size)
    assert found == sampled(data.draw(st.permutations(ids)), size)
    assert len(found) == min(size, len(ids))
    assert found <= sampled(ids, size + 1) <= sampled(ids, None) == set(ids)


def test_a_sample_prefers_no_place_in_the_alphabet():
    ids = [f"{index:012x}" for index in range(4000)]
    low = sum(name < ids[2000] for name in sampled(ids, 1000))
    assert 430 < low < 570


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """The same campaign with a sample of 2, of 5, and whole."""
    root = tmp_path_factory.mktemp("samples")
    relu = tuple(p for p in suite_problems() if p.id == "suite/relu")
    rules = select(["boundary"])
    made = {}
    for sample in (2, 5, None):
        backend = campaigns.identity_backend()
        options = PlanOptions(rules, True, backend, 6, sample=sample, benign=sample)
        campaign = campaigns.Campaign(relu, options, 1)
        session = Session.create(root / str(sample), campaign.manifest())
        campaigns.run(campaign, session, Silent(), root / "images")
        session.close()
        made[sample] = Session.open(root / str(sample))
    return made


def test_a_plan_holds_the_sample_and_how_many_it_was_taken_from(sessions):
    plans = {sample: session.plans()[0] for sample, session in sessions.items()}
    whole = [mutant["id"] for mutant in plans[None]["mutants"]]
    assert "generated" not in plans[None]
    ids = [mutant["id"] for mutant in plans[5]["mutants"]]
    assert ids == [name for name in whole if name in sampled(whole, 5)]
    assert plans[5]["generated"] == len(whole) > 5
    assert (sessions[5].manifest["sample"], sessions[5].manifest["benign"]) == (5, 5)


def test_a_plan_holds_at_most_so_many_benign_variants(sessions):
    few, more, all_ = ([b["id"] for b in sessions[n].plans()[0]["benign"]] for n in (2, 5, None))
    assert len(few) == 2 < len(all_) <= 5
    assert few == [name for name in all_ if name in few]
    assert more == all_


def test_the_account_of_an_audit_closes_over_the_sample_and_says_so(sessions):
    for sample, session in sessions.items():
        result = audit_sessions([session], None, 1e-2)
        out = io.StringIO()
        print_audit(Console(file=out, width=200), result)
        assert result.account.generated == result.sample.count
        said = f"sample of {sample} of {result.sample.total} generated mutants"
        assert (said in out.getvalue()) == (sample is not None)


def test_a_problem_that_is_refused_in_the_gate_is_no_part_of_a_sample(tmp_path, monkeypatch):
    """With lazy cells its mutants were made before."""
    monkeypatch.setattr(gate, "refusal", lambda *_, **__: "it strays")
    relu = tuple(p for p in suite_problems() if p.id == "suite/relu")
    backend = campaigns.identity_backend()
    options = PlanOptions(select(["boundary"]), True, backend, 1, sample=2, cells="lazy")
    session = Session.create(tmp_path / "s", campaigns.Campaign(relu, options, 1).manifest())
    campaigns.run(campaigns.Campaign(relu, options, 1), session, Silent(), tmp_path / "images")
    session.close()
    (plan,) = session.plans()
    assert "it strays" in plan["refused"]
    assert (plan["mutants"], "generated" in plan) == ([], False)
    assert sample_share([{**plan, "generated": 9}]) == Share(0, 0)
