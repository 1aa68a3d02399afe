"""Triton texts on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from kernelassay import cell
from kernelassay.execute.execution import RAISED, Execution
from kernelassay.execute.triton import TritonBench

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

X = np.arange(1000, dtype=np.float32)
SECONDS = 3.0


def text(body: str, host: str = "y = torch.empty_like(x)", extra: str = "") -> str:
    """A Triton text with one kernel k(x, y, n, B), launched with B = 1024."""
    lines = "\n".join("    " + line for line in body.splitlines())
    return f"""
import torch, triton, triton.language as tl

@triton.jit
def k(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
{lines}

def run(x):
    {host}
    k[(1,)](x, y, x.numel(), B=1024)
    {extra}
    return y
"""


COPY_BODY = "tl.store(y + o, tl.load(x + o, mask=o < n), mask=o < n)"
COPY = text(COPY_BODY)


@pytest.fixture(scope="module")
def bench() -> Iterator[TritonBench]:
    with TritonBench("cuda", seconds=SECONDS) as made:
        yield made


def ran_well(bench: TritonBench) -> bool:
    found = bench.run(COPY, [X])
    right = found.outcome == cell.OK and bool(np.array_equal(found.output, X))
    return right and not found.findings and not found.changed


def test_a_right_kernel_gives_its_output_and_nothing_else(bench):
    found = bench.run(COPY, [X])
    assert found == Execution(cell.OK, "", found.output)
    np.testing.assert_array_equal(found.output, X)
    assert ran_well(bench)


def test_a_text_is_loaded_and_compiled_once(bench):
    counting = text(COPY_BODY, extra="return y * 0 + len(k.device_caches[0][0])")
    assert [bench.run(counting, [X]).output[0] for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int64"])
def test_a_store_near_an_allocation_is_found_and_lands_in_no_tensor(bench, dtype):
    spilling = text("tl.store(y + o, tl.load(x + o, mask=o < n, other=1))")
    found = bench.run(spilling, [X[:900].astype(dtype)])
    np.testing.assert_array_equal(found.output, X[:900].astype(dtype))
    (finding,) = found.findings
    assert (finding.kind, finding.count) == ("oob-global-write", 124)
    assert "allocation 0" in finding.detail
    assert ran_well(bench)


def test_a_store_before_an_input_is_found(bench):
    found = bench.run(text("tl.store(x + o - 1024, 1.0)"), [X])
    assert [(f.kind, f.count) for f in found.findings] == [("oob-global-write", 1024)]
    assert "input 0" in found.findings[0].detail
    assert found.changed == ()


def test_a_load_near_an_input_reads_the_pattern(bench):
    found = bench.run(text("tl.store(y + o, tl.load(x + o + 1), mask=o < n)"), [X])
    np.testing.assert_array_equal(found.output[:-1], X[1:])
    assert found.output.view(np.uint32)[-1] == 0x3F003F00


def test_an_access_far_from_every_tensor_is_an_illegal_address_and_the_bench_lives_on(bench):
    for far in ("tl.store(y + o + (1 << 42), 1.0)", "tl.store(y + o, tl.load(x + o + (1 << 42)))"):
        found = bench.run(text(far.replace("+ o +", "+ o.to(tl.int64) +")), [X])
        assert (found.outcome, found.output) == (cell.ILLEGAL_ADDRESS, None)
        assert ran_well(bench)


ENDLESS = "v = tl.load(x)\nwhile v < 5.0:\n    v = tl.load(x, volatile=True)\ntl.store(y + o, v)"


@pytest.mark.parametrize("extra", ["", "torch.cuda.synchronize()", "y.sum().item()"])
def test_a_kernel_that_does_not_end_is_ended_and_the_bench_lives_on(bench, extra):
    found = bench.run(text(ENDLESS, extra=extra), [X])
    assert (found.outcome, found.output) == (cell.TIMEOUT, None)
    assert ran_well(bench)


def test_a_text_that_loops_in_python_is_ended_and_the_bench_lives_on(bench):
    assert bench.run("def run(x):\n    while True: pass", [X]).outcome == cell.TIMEOUT
    assert ran_well(bench)


def test_fifty_texts_run_in_turn(bench):
    texts = [COPY.replace("tl.load(x + o, mask=o < n)", f"tl.load(x + o, mask=o < n) + {i}.0")
             for i in range(50)]  # fmt: skip
    for _ in range(2):
        for i, one in enumerate(texts):
            np.testing.assert_array_equal(bench.run(one, [X]).output, X + i)


def test_strided_inputs_arrive_with_their_strides(bench):
    base = np.arange(6 * 7 * 8, dtype=np.float16).reshape(6, 7, 8)
    for view in (base[::2, 1:, ::3], base.transpose(2, 0, 1), np.broadcast_to(base[0], (4, 7, 8))):
        same = bench.run("def run(x): return x.clone()", [view])
        np.testing.assert_array_equal(same.output, view)
        telling = "import torch\ndef run(x): return torch.tensor(x.stride()).cuda()"
        strides = bench.run(telling, [view])
        assert (strides.output * view.itemsize).tolist() == list(view.strides)


@pytest.mark.parametrize("width", [1, 3, 999])
def test_elements_that_were_not_written_are_counted(bench, width):
    found = bench.run(text(f"tl.store(y + o, tl.load(x + o), mask=o < {width})"), [X])
    assert (found.outcome, found.unwritten) == (cell.OK, 1000 - width)
    assert not found.filled(0.0)[width:].any()


def test_inputs_that_change_are_named(bench):
    found = bench.run("def run(a, b):\n    b[3] = 7\n    return a + b", [X, X])
    assert (found.outcome, found.changed) == (cell.OK, (1,))


def test_what_does_not_compile_or_launch_is_said(bench):
    broken = bench.run(text("tl.store(y + o, nowhere)"), [X])
    assert broken.outcome == RAISED
    assert "nowhere" in broken.detail
    raising = bench.run(text(COPY_BODY, extra="raise ValueError('late')"), [X])
    assert (raising.outcome, "late" in raising.detail) == (RAISED, True)
    refused = bench.run(COPY.replace("k[(1,)]", "k[(1, 70000)]"), [X])
    assert refused.outcome == cell.LAUNCH_FAILURE
    assert ran_well(bench)


def test_a_text_that_allocates_all_memory_is_out_of_memory_and_the_bench_lives_on(bench):
    hog = """
import torch
kept = []
def run(x):
    while True:
        kept.append(torch.ones(1 << 28, device="cuda"))
"""
    assert bench.run(hog, [X]).outcome == cell.OUT_OF_MEMORY
    assert ran_well(bench)


@pytest.mark.parametrize(
    "array", [np.zeros(0, np.float32), np.array([True, False, True]), np.int8([1, 2, 3]), X[:1]]
)
def test_odd_sizes_and_empty_inputs_cross(bench, array):
    found = bench.run("def run(x): return x.clone()", [array])
    np.testing.assert_array_equal(found.output, array)
    assert found.changed == ()


def test_two_benches_share_a_gpu(bench):
    with TritonBench("cuda", seconds=SECONDS) as other:
        for _ in range(3):
            assert ran_well(bench)
            assert ran_well(other)
