"""A problem at its official sizes has the battery of small ones beside what checkers draw."""

from dataclasses import replace

import pytest

from kernelassay import campaign as campaigns
from kernelassay import plan as plans
from kernelassay.analysis.audit import audit_sessions
from kernelassay.errors import UsageError
from kernelassay.execute.bench import ProblemBench
from kernelassay.execute.messages import CallInfo
from kernelassay.execute.serving import tried
from kernelassay.execute.toolbox import CpuToolbox
from kernelassay.execute.worker import Worker
from kernelassay.input_shapes import Small
from kernelassay.input_trials import settle_official
from kernelassay.inputs import CHECKERS, SMALL, InputSpec, beside, materialise, official_inputs
from kernelassay.mutation import select
from kernelassay.plan import OFFICIAL, GateOptions, PlanOptions, with_known
from kernelassay.problem import load, read_problem
from kernelassay.protocols import DEFAULT
from kernelassay.session import Session
from kernelassay.small import small_sizes, small_sizes_limited
from tests.test_campaign import Silent

FILE = """
import torch
from torch import nn
batch_size = {batch}
features = {features}
class Model(nn.Module):
    def forward(self, x):
        return {forward}
def get_inputs():
    return [torch.rand(batch_size, features)]
def get_init_inputs():
    return []
"""


def written(path, forward, batch=4096, features=4096):
    file = path / "problem.py"
    file.write_text(FILE.format(forward=forward, batch=batch, features=features))
    return read_problem(file)


def bench_and_inputs(problem, small, size="brief"):
    bench = ProblemBench(problem)
    return bench, settle_official(problem, small, size, bench.signature)


def test_what_checkers_draw_has_the_official_sizes_and_all_else_is_small(tmp_path):
    problem = written(tmp_path, "torch.softmax(x, dim=1)", features=1 << 30)
    small = small_sizes(problem)
    assert not small.reason
    bench, settled = bench_and_inputs(problem, small)
    official = [spec for spec in settled.specs if not spec.overrides]
    assert [spec.id for spec in official[:5]] == [spec.id for spec in official_inputs()]
    assert [spec.id for spec in official[5:]] == ["verified-x3", "verified-x0.01", "verified-x-1"]
    rest = settled.specs[len(official) :]
    assert {spec.group for spec in rest} == {"targeted", "shape"}
    assert len({spec.id for spec in settled.specs}) == len(settled.specs)
    for spec in rest:
        assert spec.id.startswith(SMALL)
        inputs, _ = materialise(load(problem, dict(spec.overrides)), spec)
        assert inputs[0].numel() <= 1 << 20
        assert bench.signature(spec.overrides) == bench.traced.signature()


def test_a_small_input_has_the_bytes_that_the_scaled_problem_gives_it(tmp_path):
    problem = written(tmp_path, "torch.softmax(x, dim=1)")
    sizes = (("batch_size", 2), ("features", 64))
    spec = InputSpec("s", "shape", 1, "sign-mixed", (("features", 33),))
    scaled = replace(problem, shrunk=sizes)
    (own,), _ = materialise(load(scaled, dict(spec.overrides)), spec)
    small = beside(spec, sizes)
    assert small.id == "small/s"
    assert dict(small.overrides) == {"batch_size": 2, "features": 33}
    (found,), _ = materialise(load(problem, dict(small.overrides)), small)
    assert found.equal(own)


def test_a_size_that_a_constant_follows_from_stays_where_the_other_can_give_way(tmp_path):
    problem = written(tmp_path, "torch.relu(x) / x.shape[0]", batch=4000, features=16384)
    small = small_sizes(problem)
    assert not small.reason
    assert "batch_size" not in dict(small.sizes)
    assert dict(small.sizes)["features"] < 1000
    _, settled = bench_and_inputs(problem, small)
    assert sum(spec.id.startswith(SMALL) for spec in settled.specs) >= 3


def test_where_no_small_sizes_keep_the_graph_the_official_inputs_stand_alone(tmp_path):
    problem = written(tmp_path, "torch.relu(x) / (x.shape[0] * x.shape[1])", features=1 << 20)
    small = small_sizes(problem)
    assert small.reason
    bench, settled = bench_and_inputs(problem, small)
    assert [spec.group for spec in settled.specs] == ["official"] * 5 + ["verified"] * 3
    assert len(list(tried(bench, settled))) == 1


def test_a_problem_that_is_small_already_keeps_its_sizes(tmp_path):
    problem = written(tmp_path, "torch.relu(x)", batch=4, features=64)
    assert small_sizes(problem) == Small()
    _, settled = bench_and_inputs(problem, Small())
    assert any(spec.id.startswith(SMALL) and not spec.overrides for spec in settled.specs)


def test_a_problem_that_is_scaled_down_does_not_run_at_official_scale(tmp_path):
    problem = replace(written(tmp_path, "torch.relu(x)"), shrunk=(("features", 64),))
    with pytest.raises(UsageError, match="scaled down already"):
        small_sizes_limited(problem)


@pytest.mark.parametrize(
    ("features", "small"),
    [(4096, 64), (4096, 63), (4095, 64)],
    ids=["both-even", "small-odd", "official-odd"],
)
def test_what_is_known_of_a_size_holds_at_both_scales(tmp_path, features, small):
    problem = written(tmp_path, "torch.relu(torch.cat([x, x, x, x], dim=1))", features=features)
    at = Small((("batch_size", 2), ("features", small)))
    bench, settled = bench_and_inputs(problem, at)
    course = list(tried(bench, settled))
    assert dict(course[0][0]) == {"batch_size": 2, "features": small}
    assert {"batch_size": 4096, "features": features} in [dict(sizes) for sizes, _ in course]
    for call in bench.calls:
        known = with_known(_info(call), [arguments for _, arguments in course], course).fixed
        for name, value in known.items():
            for _, arguments in course:
                found = arguments[call.id][name]
                if hasattr(value, "of"):
                    assert found % value.of == 0
                elif isinstance(value, str):
                    assert found == arguments[call.id][value]
                else:
                    assert found == value


def _info(call):
    return CallInfo(call.id, call.template, call.sources, call.nodes, (), call.fixed)


def planned(problem, root):
    rules = select(["guard-off-by-one-tight", "max-min-swap"])
    options = PlanOptions(rules, True, campaigns.identity_backend(), 14, scale=OFFICIAL)
    campaign = campaigns.Campaign((problem,), options, 1)
    session = Session.create(root, campaign.manifest())
    campaigns.run(campaign, session, Silent())
    session.close()
    (plan,) = Session.open(root).plans()
    return plan


def test_a_campaign_at_official_scale_judges_official_and_small_inputs_alike(tmp_path):
    problem = written(tmp_path, "torch.softmax(x, dim=1)", batch=40, features=1024)
    plan = planned(problem, tmp_path / "s")
    assert not plan["refused"]
    assert plan["problem"]["official_shape"]
    assert "without_small_inputs" not in plan
    valid = [record for record in plan["inputs"] if record["valid"]]
    assert [r["shapes"] for r in valid if r["group"] in CHECKERS] == [[[40, 1024]]] * 8
    small = [record for record in valid if record["id"].startswith(SMALL)]
    assert len(small) >= 4
    assert all(shape[0] * shape[1] < 40 * 1024 for record in small for shape in record["shapes"])
    result = audit_sessions([Session.open(tmp_path / "s")], DEFAULT, 1e-2)
    assert result.official_shapes
    assert result.account.witnessed > 0


def test_a_plan_says_why_it_has_no_small_inputs(tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "small_sizes_limited", lambda problem: Small(reason="too tied"))
    problem = written(tmp_path, "torch.relu(x)", batch=4, features=64)
    tools = CpuToolbox.at(tmp_path)
    worker = Worker(tools)
    try:
        plan, _ = plans.admit(problem, worker, tools, GateOptions(scale=OFFICIAL))
    finally:
        worker.close()
    assert not plan["refused"]
    assert plan["without_small_inputs"] == "too tied"
    assert {record["group"] for record in plan["inputs"]} == {"official", "verified"}
