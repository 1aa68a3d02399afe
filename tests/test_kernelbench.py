import subprocess

import pytest
import torch

from kernelassay.errors import ProblemError, UsageError
from kernelassay.kernelbench import checkout_commit, kernelbench_problems, official_seeds

FILE = """
rows = 64
class Model: ...
def get_inputs(): ...
def get_init_inputs(): ...
"""


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for name in ("10_Ten.py", "2_Two.py", "1_One.py"):
        (folder / name).write_text(FILE)
    (folder / "__init__.py").write_text("")
    return tmp_path


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


def test_problems_come_in_the_order_of_their_numbers(checkout):
    problems = kernelbench_problems(checkout, 1)
    assert [problem.id for problem in problems] == [
        "kernelbench-1/1_One",
        "kernelbench-1/2_Two",
        "kernelbench-1/10_Ten",
    ]
    assert {(problem.origin, problem.level) for problem in problems} == {("kernelbench", 1)}


def test_a_folder_that_is_no_checkout_is_named(tmp_path):
    with pytest.raises(UsageError, match="no KernelBench checkout"):
        kernelbench_problems(tmp_path, 1)


def test_a_missing_level_lists_those_there_are(checkout):
    with pytest.raises(UsageError, match=r"has no level 2\n  hint: it has level1"):
        kernelbench_problems(checkout, 2)


def test_a_broken_file_is_named(checkout):
    (checkout / "KernelBench" / "level1" / "3_Bad.py").write_text("class Model:")
    with pytest.raises(ProblemError, match=r"3_Bad\.py:1: does not parse"):
        kernelbench_problems(checkout, 1)


def test_the_commit_is_the_checkouts_own(checkout):
    assert checkout_commit(checkout) is None
    git(checkout, "init")
    git(checkout, "commit", "--allow-empty", "-m", "first")
    commit = checkout_commit(checkout)
    assert commit is not None
    assert len(commit) == 40
    # A plain folder inside a repository has no commit of its own.
    assert checkout_commit(checkout / "KernelBench") is None


def test_official_seeds_are_the_draws_of_the_global_stream():
    torch.manual_seed(42)
    expected = tuple(torch.randint(0, 2**32 - 1, (1,)).item() for _ in range(5))
    state = torch.get_rng_state()
    assert official_seeds() == expected
    assert torch.equal(torch.get_rng_state(), state)
    assert official_seeds(2) == expected[:2]
    assert official_seeds(5, 43) != expected
