"""A run draws what the protocols it is asked for need, keeps it in its plan, and resumes so."""

import json

import pytest

from kernelassay import campaign as campaigns
from kernelassay.analysis.audit import audit_sessions
from kernelassay.analysis.score import Share
from kernelassay.errors import SessionError
from kernelassay.joined import JoinedSessions
from kernelassay.matrix import load
from kernelassay.mutation import select
from kernelassay.plan import PlanOptions
from kernelassay.problem import read_problem
from kernelassay.protocols import LLM_C, LOG_UNIFORM, ONE_SHAPE, V01, asked_for
from kernelassay.session import Session, inputs_of, judging_correct
from tests.user.problems import problem_text

RULES = select(["guard-delete", "precision"])


class Silent:
    """A reporter that says nothing."""

    def __getattr__(self, name):
        return lambda *arguments: None


def run(root, problem, images, *names, cells="rows", max_inputs=6):
    options = PlanOptions(
        RULES,
        True,
        campaigns.identity_backend(),
        max_inputs=max_inputs,
        sample=4,
        benign=1,
        cells=cells,
        protocols=asked_for(names),
    )
    campaign = campaigns.Campaign((problem,), options, jobs=1)
    store = Session.create(root, campaign.manifest())
    try:
        campaigns.run(campaign, store, Silent(), images)
        return store.digest()
    finally:
        store.close()


@pytest.fixture(scope="module")
def exponential(tmp_path_factory):
    """A problem whose reference overflows on values over six decades; its sessions and images."""
    folder = tmp_path_factory.mktemp("exp")
    file = folder / "exponential.py"
    file.write_text(problem_text("return torch.exp(x)", inputs="torch.rand(rows, cols)"))
    problem = read_problem(file)
    names = ("illusion-log-uniform", "kernelbench-v0.1")
    digest = run(folder / "rows", problem, folder / "images", *names)
    return folder, problem, digest


def test_inputs_of_an_asked_protocol_follow_the_battery_and_decide_no_admission(exponential):
    folder, _, _ = exponential
    store = Session.open(folder / "rows")
    (plan,) = store.plans()
    assert not plan["refused"]
    assert [record["id"] for record in plan["inputs"]][-3:] == list(LOG_UNIFORM.inputs)
    assert store.manifest["protocols"] == ["kernelbench-v0.1", "illusion-log-uniform"]


def test_correct_kernels_alone_are_judged_where_the_gate_refuses_an_input(exponential):
    folder, _, _ = exponential
    (matrix,) = load(Session.open(folder / "rows"))
    refused = [record["id"] for record in judging_correct(matrix.plan)]
    assert refused == list(LOG_UNIFORM.inputs)  # exp overflows above 88
    assert not set(refused) & set(matrix.inputs)
    assert matrix.beyond.inputs == tuple(refused)
    roles = {name.partition("/")[0] for name in matrix.beyond.candidates}
    assert roles == {"original", "benign"}


def test_a_fuzz_is_scored_on_both_axes_though_no_input_of_it_is_valid(exponential):
    folder, _, _ = exponential
    store = Session.open(folder / "rows")
    result = audit_sessions([store], None, 1e-2)
    official, fuzz = result.scores
    assert (official.protocol, fuzz.protocol) == (V01.name, LOG_UNIFORM.name)
    assert official.unfit_inputs == 0
    assert (fuzz.inputs, fuzz.unfit_inputs) == (3, 3)
    assert fuzz.detection == Share(0, official.detection.total)
    # allclose takes equal infinities: correct kernels that overflow alike pass.
    assert fuzz.false_rejection.total == official.false_rejection.total == 1
    assert fuzz.originals.total == 1


def test_a_run_that_was_asked_for_a_protocol_is_repeated_and_resumed_to_the_same_digest(
    exponential, tmp_path
):
    folder, problem, digest = exponential
    names = ("kernelbench-v0.1", "illusion-log-uniform")
    store = Session.open(folder / "rows")
    (plan,) = store.plans()
    first = next(iter(inputs_of(plan)))["id"]
    store.cell_path(problem.id, first).unlink()
    assert run(folder / "rows", problem, folder / "images", *names) == digest
    lazy = run(tmp_path / "lazy", problem, folder / "images", *names, cells="lazy")
    assert lazy == run(tmp_path / "again", problem, folder / "images", *names, cells="lazy")
    rows, lazily = (
        audit_sessions([Session.open(root)], None, 1e-2)
        for root in (folder / "rows", tmp_path / "lazy")
    )
    assert [(s.protocol, s.detection, s.false_rejection, s.originals) for s in rows.scores] == [
        (s.protocol, s.detection, s.false_rejection, s.originals) for s in lazily.scores
    ]


def test_a_resume_with_other_protocols_is_refused(exponential):
    folder, problem, _ = exponential
    with pytest.raises(SessionError, match="differs in: protocols") as refused:
        run(folder / "rows", problem, folder / "images", "all")
    assert "repeat the options" in str(refused.value)
    with pytest.raises(SessionError, match="differs in: protocols"):
        run(folder / "rows", problem, folder / "images")


def manifest(*names, cells="rows"):
    options = PlanOptions((), True, "host", cells=cells, protocols=asked_for(names))
    return {**campaigns.Campaign((), options, 1).manifest(), "problems": {}}


def test_a_session_that_was_asked_for_none_has_the_manifest_it_always_had():
    assert manifest()["protocols"] is None
    lazy = manifest(cells="lazy")["protocols"]
    assert lazy == [
        "kernelbench-v0.1",
        "kernelbench",
        "kernelbench-verified",
        "kernelbench-verified-inputs",
    ]
    assert manifest("llm.c", "one-shape-allclose", cells="lazy")["protocols"] == [
        LLM_C.name,
        ONE_SHAPE.name,
    ]


def test_sessions_of_one_campaign_share_their_protocols(tmp_path):
    stores = [
        Session.create(tmp_path / str(index), manifest(*names))
        for index, names in enumerate([("llm.c",), ("gpu-mode",)])
    ]
    for store in stores:
        store.close()
    with pytest.raises(SessionError, match="differs in protocols"):
        JoinedSessions(stores)
    assert json.loads((tmp_path / "0" / "manifest.json").read_text())["protocols"] == ["llm.c"]
