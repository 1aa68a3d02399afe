"""``kernelassay check``, end to end."""

import json
from pathlib import Path

import pytest
import torch

from kernelassay.check import CheckOptions, Verdict, replay
from kernelassay.check.replay import Recorded
from kernelassay.cli import invoke
from kernelassay.inputs import InputSpec
from tests.check.conftest import suite_problem

BRIEF = ("--battery", "brief")
RIGHT = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
WRONG = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.relu(x)
        if x.shape[1] > 3:
            out[:, -1] = 7.0
        return out
"""
COUNTS = """
import torch
from torch import nn

size = 8

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls

def get_inputs():
    return [torch.rand(size)]

def get_init_inputs():
    return []
"""
INFINITE = COUNTS.replace("x * self.calls", "x / torch.zeros_like(x)")


@pytest.fixture
def file(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def run(capsys, *arguments):
    code = invoke(["check", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_right_candidate_is_accepted_with_what_was_done(file, capsys):
    code, out, _ = run(capsys, file("c.py", RIGHT), "--problem", "suite/relu", "--seed", "3")
    assert code == 0
    assert "on suite/relu: accepted" in out
    assert "inputs: right on 31 of 31 (5 official" in out
    assert "runs: 62; seed of the hidden ones: 3" in out
    assert "defences: own process" in out


def test_a_wrong_one_is_rejected_with_place_pattern_and_smallest_input_and_replays(
    file, capsys, tmp_path
):
    kept = str(tmp_path / "kept.json")
    candidate = file("c.py", WRONG)
    options = ("--problem", "relu", *BRIEF, "--seed", "3", "--replay-file", kept)
    code, out, _ = run(capsys, candidate, *options, "--json")
    assert code == 2
    found = json.loads(out)
    assert (found["schema"], found["schema_version"]) == ("kernelassay/check", 1)
    rejection = found["data"]["rejection"]
    assert rejection["reason"] == "wrong-values"
    assert rejection["input"]["id"] == "official-0"
    assert rejection["wrong"]["position"] == [0, 255]
    assert rejection["wrong"]["pattern"]["kind"] == "columns"
    assert rejection["smallest"]["shapes"] == [[1, 4]]
    assert found["data"]["seed"] == 3
    for spec in (rejection["input"], rejection["smallest"]["spec"]):
        assert InputSpec.from_json(spec).to_json() == spec

    file("c.py", "changed since")  # a replay file has the text
    code, out, _ = run(capsys, "--replay", kept)
    assert code == 2
    assert "replay: the same verdict" in out

    record = json.loads((tmp_path / "kept.json").read_text())
    record["verdict"]["position"] = [0, 0, 1]
    (tmp_path / "kept.json").write_text(json.dumps(record))
    code, _, err = run(capsys, "--replay", kept)
    assert code == 3
    assert "differs in position" in err


@pytest.mark.parametrize(
    "changed",
    [
        {"candidate": {"name": "c.py", "source": 3, "digest": ""}},
        {"candidate": []},
        {"problem": None},
        {"options": {"device": "tpu"}},
        {"options": {"given": [3]}},
        {"verdict": [1]},
        {"schema": "kernelassay/plan"},
    ],
    ids=str,
)
def test_a_replay_file_of_another_form_is_told(file, tmp_path, capsys, changed):
    kept, candidate = tmp_path / "kept.json", Path(file("c.py", RIGHT))
    options = CheckOptions(seed=3)
    recorded = Recorded.of(candidate, suite_problem("suite/relu"), options)
    verdict = Verdict("suite/relu", "", "c.py", "", 3, None, (), (), 0, 0.0, (), ())
    replay.write(kept, recorded, verdict)
    assert replay.read(kept).options == options
    data = json.loads(kept.read_text())
    for name, value in changed.items():
        both = isinstance(value, dict) and name == "options"
        data[name] = {**data[name], **value} if both else value
    kept.write_text(json.dumps(data))
    code, _, err = run(capsys, "--replay", str(kept))
    assert code == 1
    assert "is no" in err


def test_inputs_of_a_suite_file_take_the_place_of_the_battery(file, capsys):
    spec = {
        "id": "mine", "group": "suite", "seed": 9, "transform": "sign-mixed", "overrides": {},
        "parameters": "official", "layout": "contiguous", "order": "forward",
        "surroundings": "finite",
    }  # fmt: skip
    suite = file("suite.json", json.dumps({"problem": "suite/relu", "inputs": [spec]}))
    candidate = file("c.py", RIGHT)
    code, out, _ = run(capsys, candidate, "--problem", "relu", "--suite", suite, "--json")
    assert code == 0
    judged = json.loads(out)["data"]["judged"]
    assert judged[0]["id"] == "mine"
    assert {one["group"] for one in judged[1:]} == {"hidden"}
    code, _, err = run(capsys, candidate, "--problem", "tanh", "--suite", suite)
    assert code == 1
    assert "has inputs of 'suite/relu'" in err


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("{}", 1, "is no suite of inputs"),
        ('{"problem": "suite/relu", "inputs": []}', 4, "has no inputs"),
        ('{"problem": "suite/relu", "inputs": [{"id": "x"}]}', 1, "is no input"),
    ],
)
def test_a_bad_suite_file_is_told(file, capsys, text, code, said):
    suite = file("suite.json", text)
    found = run(capsys, file("c.py", RIGHT), "--problem", "relu", "--suite", suite)
    assert found[0] == code
    assert said in found[2]


def test_other_sizes_are_left_out_on_demand(file, capsys):
    fixed = RIGHT.replace("return", "assert x.shape == (16, 256)\n        return")
    candidate = file("c.py", fixed)
    options = ("--problem", "relu", *BRIEF)
    assert run(capsys, candidate, *options)[0] == 2
    code, out, _ = run(capsys, candidate, *options, "--fixed-shapes", "--json")
    assert code == 0
    reasons = {one["reason"] for one in json.loads(out)["data"]["refused"]}
    assert reasons == {"other sizes were left out on demand"}


def test_a_reference_that_is_rejected_as_a_candidate_ends_the_check(file, capsys):
    candidate, problem = file("c.py", RIGHT), file("counts.py", COUNTS)
    code, _, err = run(capsys, candidate, "--problem", problem, *BRIEF)
    assert code == 3
    assert "the problem's own reference is rejected" in err


def test_a_problem_without_a_fit_input_is_told(file, capsys):
    candidate, problem = file("c.py", RIGHT), file("infinite.py", INFINITE)
    code, _, err = run(capsys, candidate, "--problem", problem, *BRIEF)
    assert code == 4
    assert "the reference is not finite" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "needs a candidate and its problem"),
        (("--problem", "relu"), "needs a candidate and its problem"),
        (("{c}", "--problem", "no_such"), "unknown problem"),
        (("{c}", "--problem", "no_such.py"), "no_such.py: no such file"),
        (("{c}", "--problem", "conv*"), "matches"),
        (("{c}", "--problem", "relu", "--replay", "{c}"), "leave both out"),
        (("--replay", "{c}"), "is no replay file"),
    ],
)
def test_usage_errors_are_told(file, capsys, arguments, said):
    path = file("c.py", RIGHT)
    code, _, err = run(capsys, *(a.format(c=path) for a in arguments))
    assert code == 1
    assert said in err


def test_a_candidate_in_cuda_is_run_under_the_checks_of_the_cpu_executor(file, capsys):
    text = """// kernelassay: x = arg0
// kernelassay: y = out
// kernelassay: n = x.numel
// kernelassay: relu<<<n / 128, 128>>>(x, y, n)
__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
"""
    code, out, _ = run(capsys, file("c.cu", text), "--problem", "relu", *BRIEF, "--json")
    assert code == 2
    rejection = json.loads(out)["data"]["rejection"]
    assert rejection["reason"] == "unwritten"
    assert rejection["wrong"]["pattern"]["kind"] == "tail"
    assert rejection["smallest"]["shapes"] == [[1, 129]]  # below 128 no block is launched


@pytest.mark.parametrize(
    ("line", "body", "reason"),
    [
        ("// kernelassay: skip *", "y[i] = x[i]", "wrong-values"),
        ('extern "C" __device__ void _exit(int);', "_exit(0)", "does-not-build"),
        ("", 'asm volatile("exit;")', "does-not-build"),
    ],
    ids=["skips what it fails on", "needs what is not there", "leaves the language"],
)
def test_a_cuda_file_cannot_choose_its_inputs_nor_leave_the_executor(
    file, capsys, line, body, reason
):
    text = f"""// kernelassay: x = arg0
// kernelassay: y = out
// kernelassay: n = x.numel
// kernelassay: relu<<<(n + 127) / 128, 128>>>(x, y, n)
{line}
__global__ void relu(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{ {body}; }}
}}
"""
    code, out, _ = run(capsys, file("c.cu", text), "--problem", "relu", *BRIEF, "--json")
    assert code == 2
    assert json.loads(out)["data"]["rejection"]["reason"] == reason


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("forward", ["return x.cuda()", "import triton_no\n        return x"])
def test_a_candidate_that_needs_a_device_is_no_wrong_one(file, capsys, forward):
    text = RIGHT.replace("return torch.relu(x)", forward).replace("triton_no", "triton.no")
    code, _, err = run(capsys, file("c.py", text), "--problem", "relu", *BRIEF)
    assert code == 1
    assert "needs what is not here" in err
    code, _, err = run(capsys, file("c.py", RIGHT), "--problem", "relu", "--executor", "cuda")
    assert code == 1
