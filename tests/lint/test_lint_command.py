"""``kernelassay lint``: exit codes, bad problem files, limits, and what the output says."""

import json

import pytest

from kernelassay.cli import invoke
from kernelassay.lint import Options, lint
from kernelassay.problem import read_problem

HEAD = "import torch, os, time\nbatch_size = 4\nfeatures = 8192\n"
TAIL = """
class Model(torch.nn.Module):
    def forward(self, x):
        {forward}
def get_inputs():
    return [torch.rand(batch_size, features) - 0.5]
def get_init_inputs():
    return []
"""
SOUND = "return 3 * x"


@pytest.fixture
def problem(tmp_path):
    """Write a problem file; its path."""

    def write(forward=SOUND, name="case", top=""):
        path = tmp_path / f"{name}.py"
        path.write_text(HEAD + top + TAIL.format(forward=forward))
        return str(path)

    return write


def documents(capsys, *arguments):
    code = invoke(["lint", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_json_is_one_versioned_document_and_progress_is_not_in_it(problem, capsys):
    code, document = documents(capsys, "--problem", problem())
    assert (code, document["schema"], document["schema_version"]) == (0, "kernelassay/lint", 1)
    (report,) = document["data"]["problems"]
    assert (report["problem"], report["shapes"], report["inputs"]) == ("file/case", "official", 5)
    assert report["findings"] == []


def test_strict_ends_with_2_if_there_is_a_finding(problem, capsys):
    assert invoke(["lint", "--strict", "--problem", problem()]) == 0
    assert invoke(["lint", "--problem", problem("return x * 1e-3")]) == 0
    assert invoke(["lint", "--strict", "--problem", problem("return x * 1e-3")]) == 2
    assert "1 of 1 problems" in capsys.readouterr().err


def test_severity_leaves_weak_findings_out_of_output_and_gate(problem, capsys):
    weak = ["lint", "--strict", "--severity", "fatal", "--problem", problem("return x * 1e-3")]
    assert invoke(weak) == 0
    assert "zeros-pass" not in capsys.readouterr().out
    assert invoke([*weak[:-1], problem("return x * 1e-5")]) == 2
    assert "zeros-pass" in capsys.readouterr().out


def test_parameters_of_one_kind_share_a_line_and_json_lists_them_all(tmp_path, capsys):
    path = tmp_path / "norms.py"
    layers = "torch.nn.Sequential(*[torch.nn.LayerNorm(8) for _ in range(6)])"
    path.write_text(
        f"{HEAD}features = 8\nclass Model(torch.nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        self.n = {layers}\n"
        "    def forward(self, x):\n        return 3 * self.n(x)\n"
        f"def get_inputs():{TAIL.split('def get_inputs():')[1]}"
    )
    assert invoke(["lint", "--problem", str(path)]) == 0
    lines = [x for x in capsys.readouterr().out.splitlines() if " identity-parameter  " in x]
    assert any("likewise" in line and ", ..." in line for line in lines)
    _, document = documents(capsys, "--problem", str(path))
    (report,) = document["data"]["problems"]
    named = [f for f in report["findings"] if f["kind"] == "identity-parameter"]
    assert len({f["numbers"]["parameter"] for f in named}) == 12


def test_nothing_to_lint_ends_with_4(capsys):
    assert invoke(["lint", "nothing-*"]) == 4
    assert "nothing-*" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["def (", "x = 1\n"])
def test_a_file_that_is_no_problem_is_a_finding_and_the_others_are_linted(
    text, problem, tmp_path, capsys
):
    bad = tmp_path / "bad.py"
    bad.write_text(text)
    code, document = documents(capsys, "--problem", str(bad), "--problem", problem())
    assert code == 0
    first, second = document["data"]["problems"]
    assert (first["problem"], first["findings"][0]["kind"]) == ("file/bad", "not-loadable")
    assert (second["problem"], second["findings"]) == ("file/case", [])
    assert document["data"]["counts"]["fatal"] == {"not-loadable": 1}
    assert invoke(["lint", "--strict", "--problem", str(bad)]) == 2


def test_shrunk_sizes_are_named(problem, capsys):
    path = problem("return x.softmax(1)")
    _, official = documents(capsys, "--problem", path)
    assert official["data"]["problems"][0]["shapes"] == "official"
    # Zeros pass at 8192 columns, not at the size a CPU run gets.
    assert official["data"]["counts"]["fatal"] | official["data"]["counts"]["weak"]
    bigger = problem("return x.repeat(64, 64).softmax(1)[:batch_size]")
    _, shrunk = documents(capsys, "--shrink", "--problem", bigger)
    (report,) = shrunk["data"]["problems"]
    assert report["shapes"] == "shrunk"
    assert report["shrunk"]["features"] < 8192
    assert invoke(["lint", "--shrink", "--problem", bigger]) == 0
    assert f"features={report['shrunk']['features']}" in capsys.readouterr().out


def test_what_cannot_be_shrunk_is_linted_as_it_is_and_says_so(problem, capsys):
    wide = "(3 * {(4, 8192): x}[tuple(x.shape)]).repeat(1, 5 * 5 * 5 * 5)"
    path = problem(f"return {wide}[:, :features]")
    _, document = documents(capsys, "--shrink", "--problem", path)
    (report,) = document["data"]["problems"]
    assert report["shapes"] == "official"
    assert report["note"].startswith("not shrunk: ")


@pytest.mark.parametrize(
    ("top", "forward", "reason", "seconds"),
    [
        ("while True: pass\n", SOUND, "did not end within", "3"),
        ("", "time.sleep(600)", "did not end within", "3"),
        ("", "return x.expand(1 << 40, 4, 8192).clone()", "memory", "120"),
        ("hoard = []\nwhile True: hoard.append(bytearray(1 << 29))\n", SOUND, "memory", "120"),
        ("import no_such_module_anywhere\n", SOUND, "no_such_module_anywhere", "120"),
        ("", "os.kill(os.getpid(), 9)", "SIGKILL", "120"),
    ],
)
def test_what_passes_a_limit_is_unjudged_not_found_guilty(
    top, forward, reason, seconds, problem, capsys
):
    path = problem(forward, top=top)
    arguments = ["--timeout", seconds, "--memory", "1", "--problem", path]
    code, document = documents(capsys, *arguments)
    (report,) = document["data"]["problems"]
    assert (code, report["findings"]) == (0, [])
    assert reason in report["unjudged"]
    assert invoke(["lint", "--strict", *arguments]) == 2


def hanging(tmp_path, call, forward):
    """A problem whose model does not come back from its n-th call."""
    path = tmp_path / "slow.py"
    count = f"calls.append(1); time.sleep(600 * (len(calls) == {call})); "
    path.write_text(HEAD + "calls = []\n" + TAIL.format(forward=count + forward))
    (report,) = lint([read_problem(path)], Options(seconds=8.0, memory_bytes=4 << 30))
    return report


def test_findings_before_the_time_limit_are_kept(tmp_path):
    report = hanging(tmp_path, 9, "return x * 1e-5")
    assert [(f.kind, f.severity) for f in report.findings] == [("zeros-pass", "fatal")]
    assert 0 < report.inputs < 5
    assert "broken off: no time was left" in {s.reason for s in report.skipped}
    assert report.unjudged == ""


def test_a_problem_of_which_no_input_was_judged_is_unjudged(tmp_path):
    report = hanging(tmp_path, 1, "return 3 * x")
    assert "did not end within" in report.unjudged
    assert report.findings == ()


def test_jobs_keep_the_order_of_the_problems(problem, capsys):
    paths = [problem("time.sleep(0.3); return 3 * x", "slow"), problem(name="fast")]
    arguments = [part for path in paths for part in ("--problem", path)]
    _, document = documents(capsys, "--jobs", "2", *arguments)
    assert [r["problem"] for r in document["data"]["problems"]] == ["file/slow", "file/fast"]


def test_a_device_that_does_not_exist_is_a_usage_error(problem, capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    assert invoke(["lint", "--device", "cuda", "--problem", problem()]) == 1
    assert "--device cpu" in capsys.readouterr().err
