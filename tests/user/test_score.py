"""The mutation score of somebody's own inputs: what it counts, and what it refuses."""

import pytest
import torch

from kernelassay.cli import invoke
from kernelassay.errors import ControlError, NothingToTestError, UsageError
from kernelassay.user.score import mutation_score
from tests.user.problems import problem_text

KERNEL = """\
// kernelassay: x = arg0
// kernelassay: y = out
// kernelassay: n = arg0.numel
// kernelassay: relu<<<(n + 31) / 32, 32>>>(x, y, n)
__global__ void relu(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f) + %s;
}
"""
RULES = ("guard-delete", "guard-off-by-one-tight", "max-min-swap")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "relu.cu").write_text(KERNEL % "0.0f")
    (tmp_path / "relu.py").write_text(
        problem_text("return torch.relu(x)", sizes="rows = 4\ncols = 24")
    )
    return tmp_path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("measurements")


def scored(files, folder, inputs, **options):
    return mutation_score(
        files / "relu.cu", files / "relu.py", inputs, rules=RULES, folder=folder, **options
    )


ZEROS = [[torch.zeros(4, 24)]]


def test_the_score_counts_what_inputs_can_tell_and_names_what_they_miss(files, folder):
    """Drawn values against zeros: a mutant that leaves zero at zero is missed by the zeros."""
    drawn = scored(files, folder, None)
    blind = scored(files, folder, ZEROS)
    assert 0 < drawn.detected <= drawn.witnessed
    assert blind.detected < drawn.detected
    assert len(blind.survivors) == blind.witnessed - blind.detected
    worst = blind.survivors[0]
    assert worst.error > 1e-2
    assert worst.rule in blind.report(limit=1)
    assert "\n+" in worst.diff
    loose = scored(files, folder, None, tolerance=0.5)  # the same measurements, read again
    assert loose.session == drawn.session
    assert loose.witnessed == drawn.witnessed
    assert loose.detected <= drawn.detected
    with pytest.raises(ControlError, match="accept control/forced-failure"):
        scored(files, folder, None, tolerance=1e3)


def test_a_problem_file_may_bring_the_inputs(files, folder):
    other = files / "zeros.py"
    other.write_text(problem_text("return torch.relu(x)", inputs="torch.zeros(4, 24)"))
    assert scored(files, folder, other).session == scored(files, folder, ZEROS).session


def test_a_kernel_that_is_wrong_is_not_scored(files, folder):
    (files / "relu.cu").write_text(KERNEL % "0.5f")
    with pytest.raises(NothingToTestError, match=r"output 0 \[0, 0\] is"):
        scored(files, folder, None)


def test_a_test_that_rejects_the_kernel_itself_gives_no_score(files, folder):
    (files / "relu.cu").write_text(KERNEL % "2e-5f")
    with pytest.raises(ControlError, match="reject the correct kernel"):
        scored(files, folder, None, tolerance=1e-6)


@pytest.mark.parametrize(
    "inputs", [[], [torch.zeros(4, 24)], [[torch.full((4, 24), float("nan"))]]]
)
def test_inputs_of_another_form_or_that_judge_nobody_are_refused(files, folder, inputs):
    with pytest.raises(UsageError, match=r"argument lists|cannot judge"):
        scored(files, folder, inputs)


@pytest.mark.parametrize("arguments", [["suite/relu", "suite/gelu"], []])
def test_a_kernel_needs_the_one_problem_it_computes(files, arguments, capsys):
    assert invoke(["run", *arguments, "--kernel", str(files / "relu.cu")]) == 1
    assert "--problem" in capsys.readouterr().err


def test_a_cell_of_a_users_kernel_replays_until_the_kernel_changes(files, capsys, monkeypatch):
    import json

    monkeypatch.chdir(files)
    words = ["--problem", "relu.py", "--kernel", "relu.cu"]
    assert invoke(["run", *words, "--quick", "--rules", "max-min-swap", "--session", "s"]) == 0
    assert invoke(["mutants", *words, "--rules", "max-min-swap", "--json"]) == 0
    printed = capsys.readouterr().out
    mutant = json.loads(printed[printed.index("{") :])["data"][0]["id"]
    assert invoke(["replay", "s", mutant, "official-0"]) == 0
    (files / "relu.cu").write_text(KERNEL % "1e-9f")
    assert invoke(["replay", "s", mutant, "official-0"]) == 1
    assert "the kernel changed" in capsys.readouterr().err
