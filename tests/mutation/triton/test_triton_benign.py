"""Benign rewrites of Triton kernels keep them correct: each is run beside its original."""

import json
import os
import subprocess
import sys

import pytest

from kernelassay.mutation.engine import mutants
from kernelassay.mutation.triton.benign import BENIGN
from kernelassay.mutation.triton.examples import SOFTMAX, module
from tests.mutation.triton.modules import FLAT, ROWS

#: Every kind of benign rewrite has a site in one of these.
SOFTMAX_ROW = module(SOFTMAX)
ACTIVATIONS = """import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    low = tl.where(x > 0, x, 0.0) + tl.maximum(x, 0.0) + tl.where(x < 0.0, 0.0, x)
    s = 0.0
    for j in range(0, n, 4):
        s += tl.load(x_ptr + j)
    y = low + 0.5 * x * x / tl.exp(x) + s + x * (1.0 / tl.sqrt(x * x + 1.0))
    tl.store(y_ptr + i, y + tl.rsqrt(x * x + 1.0), mask=i < n)


def run(x, y, n):
    BLOCK = 32
    k[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK)
"""

RUNNER = """
import json, linecache, sys, types
import torch

def load(name, text):
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    module = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
    return module

def outcome(kind, name, text):
    module = load(name, text)
    x = torch.linspace(-3.0, 2.5, 77)
    if kind == "rows":
        return module.run(x.reshape(7, 11), torch.linspace(0.5, 2.0, 11)).flatten()
    y = torch.zeros(77)
    if kind == "flat":
        module.run(x, y, 0.7)
    elif kind == "softmax":
        module.k[(1,)](x, y, 77, BLOCK=16)
    else:
        module.run(x, y, 77)
    return y

work = json.load(sys.stdin)
print(json.dumps([
    outcome(kind, f"<kernel {number}>", text).tolist() for number, (kind, text) in enumerate(work)
]))
"""


def outcomes(work: list[tuple[str, str]]) -> list[list[float]]:
    """What each kernel computes, in Triton's interpreter, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(work),
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def variants():
    sources = {"flat": FLAT, "rows": ROWS, "softmax": SOFTMAX_ROW, "activations": ACTIVATIONS}
    found = []
    for kind, source in sources.items():
        made = mutants(source, problem=kind, call="", style="", rules=BENIGN, language="triton")
        found += [(kind, m.rule, source, m.source) for m in made.mutants]
    return found


def test_every_benign_rewrite_has_a_variant(variants):
    assert {rule for _, rule, _, _ in variants} == {rule.id for rule in BENIGN}


def test_a_benign_variant_computes_what_its_original_does(variants):
    work = [(kind, text) for kind, _, _, text in variants]
    originals = sorted({(kind, source) for kind, _, source, _ in variants})
    results = outcomes([*originals, *work])
    wanted = {kind: results[i] for i, (kind, _) in enumerate(originals)}
    for (kind, rule, _, _), got in zip(variants, results[len(originals) :], strict=True):
        assert any(abs(value) > 0.1 for value in got), rule
        assert got == pytest.approx(wanted[kind], rel=2e-5, abs=2e-5), rule
