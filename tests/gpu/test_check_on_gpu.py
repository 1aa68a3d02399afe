"""``kernelassay check --executor cuda``: candidates that run on the device."""

import pytest
import torch

from kernelassay.cheats import corpus
from kernelassay.check import Candidate, Checker, CheckOptions
from kernelassay.execute.confinement import Limits
from tests.check.conftest import SEED, suite_problem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

HEAD = "import torch\nfrom torch import nn\n"
RIGHT = """
class ModelNew(nn.Module):
    def forward(self, left, right):
        return left @ right
"""
TRITON = """
import triton
import triton.language as tl

@triton.jit
def product(a, b, c, k, n, SIZE: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    total = tl.zeros((SIZE,), dtype=tl.float32)
    for i in range(k):
        values = tl.load(b + i * n + columns, mask=columns < n, other=0.0)
        total += tl.load(a + row * k + i) * values
    tl.store(c + row * n + columns, total, mask=columns < n)

class ModelNew(nn.Module):
    def forward(self, left, right):
        a, b = left.contiguous(), right.contiguous()
        c = torch.empty(a.shape[0], b.shape[1], device=a.device)
        product[(a.shape[0], -(-b.shape[1] // 64))](a, b, c, a.shape[1], b.shape[1], SIZE=64)
        return c
"""
UNWRITTEN = """
class ModelNew(nn.Module):
    def forward(self, left, right):
        out = torch.empty(left.shape[0], right.shape[1], device=left.device)
        out[:, :-1] = (left @ right)[:, :-1]
        return out
"""
STRAY = RIGHT.replace("return left", "left.add_(1.0)\n        return (left - 1.0)")
HOST = RIGHT.replace("left @ right", "(left @ right).cpu()")


@pytest.fixture(scope="module")
def checker():
    options = CheckOptions(seed=SEED, device="cuda", limits=Limits(reserves_space=True), trials=8)
    with Checker(suite_problem("suite/matmul_rectangular"), options) as made:
        yield made


@pytest.mark.parametrize("text", [RIGHT, TRITON], ids=["torch", "triton"])
def test_a_right_candidate_is_accepted(checker, text):
    if text is TRITON:
        pytest.importorskip("triton")
    verdict = checker.check(Candidate("c", HEAD + text))
    assert verdict.accepted, verdict.rejection


@pytest.mark.parametrize(
    ("text", "reason"),
    [(UNWRITTEN, "unwritten"), (STRAY, "changes-input"), (HOST, "wrong-device")],
)
def test_a_wrong_one_is_rejected(checker, text, reason):
    verdict = checker.check(Candidate("c", HEAD + text))
    assert verdict.rejection.reason == reason, verdict.rejection


@pytest.mark.parametrize(
    "entry", [pytest.param(one, id=one.id) for one in corpus() if one.needs == "cuda"]
)
def test_a_cheat_that_needs_a_device_is_caught(checker, entry):
    verdict = checker.check(Candidate(entry.id, entry.path.read_text(encoding="utf-8")))
    assert not verdict.accepted
