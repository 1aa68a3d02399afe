import pytest

from kernelassay.check import Candidate, Checker, CheckOptions
from kernelassay.check.subject import Seconds
from kernelassay.execute.confinement import Limits
from kernelassay.suite import suite_problems

SEED = 20


def suite_problem(name):
    return next(problem for problem in suite_problems() if problem.id == name)


@pytest.fixture(scope="session")
def softmax():
    """A checker of the suite's softmax with small limits."""
    options = CheckOptions(
        seed=SEED,
        battery="brief",
        limits=Limits(memory_bytes=1 << 30, file_bytes=4 << 20, processes=32),
        seconds=Seconds(build=20.0, run=3.0),
        trials=6,
    )
    with Checker(suite_problem("suite/softmax_rows"), options) as checker:
        yield checker


@pytest.fixture
def judged(softmax):
    """The verdict on a ModelNew for softmax, by its text or by the lines of its forward."""

    def judge(forward="return torch.softmax(x, dim=1)", top=""):
        body = "\n".join("        " + line for line in forward.splitlines())
        source = (
            f"import os, sys, time\nimport torch\nfrom torch import nn\n{top}\n"
            f"class ModelNew(nn.Module):\n    def forward(self, x):\n{body}\n"
        )
        return softmax.check(Candidate("candidate.py", source))

    return judge
