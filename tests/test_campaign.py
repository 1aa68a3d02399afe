"""A campaign ends with the same digest however it is interrupted, and loses nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelassay import campaign as campaigns
from kernelassay.analysis.audit import audit_sessions
from kernelassay.analysis.cost import cost_report
from kernelassay.cli import invoke
from kernelassay.execute.worker import Worker
from kernelassay.machines import MACHINES
from kernelassay.mutation import select
from kernelassay.plan import PlanOptions
from kernelassay.problem import read_problem
from kernelassay.session import Session
from kernelassay.suite import suite_problems

RULES = ("guard-off-by-one-tight", "barrier-delete", "loop-start-plus-one", "max-min-swap")
NAMES = ("suite/softmax_rows", "suite/relu")


class Silent:
    def problem_step(self, problem, step):
        pass

    def problem_planned(self, problem, plan):
        pass

    def cells_done(self, problem, count):
        pass

    def problem_done(self, problem, plan):
        pass


def campaign(names=NAMES, jobs=1, **chosen):
    problems = tuple(p for p in suite_problems() if p.id in names)
    backend = campaigns.identity_backend()
    options = PlanOptions(select(RULES), quick=True, backend=backend, max_inputs=8, **chosen)
    return campaigns.Campaign(problems, options, jobs)


def measure(root, reporter=None, images=None, **options):
    plan = campaign(**options)
    session = Session.create(root, plan.manifest())
    try:
        campaigns.run(plan, session, reporter or Silent(), images)
        return session.digest()
    finally:
        session.close()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, images):
    root = tmp_path_factory.mktemp("finished") / "s"
    return root, measure(root, images=images)


def test_two_runs_have_one_digest(finished, tmp_path):
    assert measure(tmp_path / "s", jobs=2) == finished[1]


def test_the_official_check_gets_a_score_with_closing_buckets(finished):
    result = audit_sessions([Session.open(finished[0])], None, 1e-2)
    assert result.problems == len(NAMES)
    assert result.account.witnessed > 0
    loose, tight = result.scores
    assert 0 < loose.detection.count <= tight.detection.count <= tight.detection.total
    assert set(result.not_scored) == {"kernelbench-verified", "kernelbench-verified-inputs"}


def test_the_correct_kernels_have_no_finding(finished):
    session = Session.open(finished[0])
    for plan in session.plans():
        for record in plan["inputs"]:
            if record["valid"]:
                rows = session.read_cells(plan["problem"]["id"], record["id"]).to_pylist()
                correct = [
                    r for r in rows if r["candidate"].split("/")[0] in ("original", "benign")
                ]
                assert correct
                assert all(not row["findings"] for row in correct)


def test_every_dropped_barrier_is_flagged(finished):
    session = Session.open(finished[0])
    (plan,) = (p for p in session.plans() if p["problem"]["id"] == "suite/softmax_rows")
    dropped = {
        m["id"]
        for m in plan["mutants"]
        if m["rule"] == "barrier-delete" and m["status"] == "distinct"
    }
    assert dropped
    flagged = set()
    for record in plan["inputs"]:
        if record["valid"]:
            rows = session.read_cells("suite/softmax_rows", record["id"]).to_pylist()
            flagged |= {row["candidate"] for row in rows if row["findings"]}
    assert dropped <= flagged


@pytest.mark.parametrize(
    "moments", [{0, 2, 5}, {6}, {40, 80, 120}], ids=["opening", "controls", "candidates"]
)
def test_a_worker_killed_at_any_moment_changes_nothing(
    finished, images, tmp_path, monkeypatch, moments
):
    killed = []
    original = Worker._receive

    def receive(self, seconds):
        if receive.calls in moments and self._process is not None:
            killed.append(self._process.pid)
            os.kill(self._process.pid, signal.SIGKILL)
        receive.calls += 1
        return original(self, seconds)

    receive.calls = 0
    monkeypatch.setattr(Worker, "_receive", receive)
    assert measure(tmp_path / "s", images=images) == finished[1]
    assert len(killed) == len(moments)
    report = cost_report([Session.open(tmp_path / "s")], MACHINES["cpu"])
    assert list(report.replacements) == ["signal SIGKILL"]
    lost = report.replacements["signal SIGKILL"]
    assert lost.count == len(moments)
    assert lost.seconds > 0


SCRIPT = """
import signal, sys
sys.path.insert(0, {tests!r})
import test_campaign
from pathlib import Path
if __name__ == "__main__":
    # Ignored by what a shell starts with `&`, this test perhaps.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    test_campaign.measure(Path(sys.argv[1]), images=Path(sys.argv[2]))
"""


def test_a_killed_coordinator_resumes_to_the_same_digest(finished, images, tmp_path):
    script = tmp_path / "run.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent)))
    root = tmp_path / "s"
    process = subprocess.Popen([sys.executable, str(script), str(root), str(images)])
    deadline = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < deadline:
        if len(list(root.glob("cells/*/*.parquet"))) >= 3:
            process.kill()
        time.sleep(0.02)
    process.wait()
    assert process.returncode == -signal.SIGKILL
    done = {p: p.stat().st_mtime_ns for p in root.glob("cells/*/*.parquet")}
    assert measure(root, images=images) == finished[1]
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in done.items())


def test_a_truncated_cell_file_is_measured_again(finished, images, tmp_path):
    root = tmp_path / "s"
    shutil.copytree(finished[0], root)
    victim = sorted(root.glob("cells/*/*.parquet"))[0]
    victim.write_bytes(victim.read_bytes()[:100])
    assert measure(root, images=images) == finished[1]


def test_replay_reproduces_any_cell(finished, capsys):
    root = finished[0]
    session = Session.open(root)
    for plan in session.plans():
        mutants = [m["id"] for m in plan["mutants"] if m["status"] == "distinct"]
        inputs = [r["id"] for r in plan["inputs"] if r["valid"]]
        assert invoke(["replay", str(root), mutants[0], inputs[0]]) == 0
        assert invoke(["replay", str(root), mutants[-1], inputs[-1], "--json"]) == 0
    assert "identical to the stored cell" in capsys.readouterr().out


def test_a_forged_cell_does_not_replay(finished, tmp_path, capsys):
    root = tmp_path / "s"
    shutil.copytree(finished[0], root)
    session = Session.open(root)
    plan = session.plans()[0]
    name, record = plan["problem"]["id"], next(r for r in plan["inputs"] if r["valid"])
    table = session.read_cells(name, record["id"])
    rows = table.to_pylist()
    mutant = next(m["id"] for m in plan["mutants"] if m["status"] == "distinct")
    for row in rows:
        if row["candidate"] == mutant:
            row["output_digest"] = "0" * 24
    session.write_cells(name, record["id"], table.from_pylist(rows, schema=table.schema))
    assert invoke(["replay", str(root), mutant, record["id"]]) == 3
    assert "output_digest" in capsys.readouterr().err


BAD_FILES = {
    "no_such_module_anywhere": "import no_such_module_anywhere\n",
    "boom": "raise RuntimeError('boom')\n",
    "SystemExit|exit code": "import sys\nsys.exit(3)\n",
    "SIGKILL": "import os\nos.kill(os.getpid(), 9)\n",
}
GOOD = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return {expression}
def get_inputs():
    return [torch.rand(4, 8)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(("reason", "prefix"), BAD_FILES.items(), ids=BAD_FILES)
def test_a_bad_problem_file_is_refused_with_its_reason(reason, prefix, tmp_path):
    path = tmp_path / "bad.py"
    path.write_text(prefix + GOOD.format(expression="x * 2"))
    root = tmp_path / "s"
    plan = campaigns.Campaign((read_problem(path),), campaign().options, 1)
    session = Session.create(root, plan.manifest())
    campaigns.run(plan, session, Silent())
    session.close()
    (made,) = session.plans()
    assert re.search(reason, made["refused"])


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("torch.fft.fft(x).real", "aten._fft_r2c"),
        ("torch.multinomial(x.abs(), 1).float()", "random"),
        ("3", "no tensor"),
    ],
)
def test_an_unsupported_construct_is_named(expression, reason, tmp_path):
    path = tmp_path / "odd.py"
    path.write_text(GOOD.format(expression=expression))
    plan = campaigns.Campaign((read_problem(path),), campaign().options, 1)
    session = Session.create(tmp_path / "s", plan.manifest())
    campaigns.run(plan, session, Silent())
    session.close()
    assert reason in session.plans()[0]["refused"]


def test_json_output_is_one_versioned_document(finished, capsys):
    assert invoke(["audit", str(finished[0]), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "kernelassay/audit"
    assert document["schema_version"] == 1


def test_ctrl_c_ends_soon_and_the_same_command_resumes(finished, tmp_path):
    """Compiled code is where a session has it by default: with the session."""
    script = tmp_path / "run.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent)))
    root = tmp_path / "s"
    command = [sys.executable, str(script), str(root), str(root / "images")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not list(root.glob("cells/*/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert measure(root) == finished[1]
