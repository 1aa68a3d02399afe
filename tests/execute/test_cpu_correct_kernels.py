"""Correct kernels compute what numpy computes, with no finding, in every thread order."""

import numpy as np
import pytest

from tests.execute.cpu_kernels import HALF_DOT, LAYERNORM, MATMUL, SOFTMAX, VADD, WARP_SUM
from tests.execute.runs import Out

rng = np.random.default_rng(5)
ORDERS = ("forward", "reverse", "seeded:1", "seeded:2")


def normal(*shape):
    return rng.normal(size=shape).astype(np.float32)


def softmax_case():
    x = normal(3, 200)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return SOFTMAX, 3, 128, (x, Out(x.shape), 200), {"shared": 512}, e / e.sum(1, keepdims=True)


def matmul_case():
    a, b = normal(19, 21), normal(21, 10)
    arguments = (a, b, Out((19, 10)), 19, 10, 21)
    return MATMUL, (2, 3), (8, 8), arguments, {}, a.astype(np.float64) @ b


def layernorm_case():
    x = normal(3, 100)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    return LAYERNORM, 3, 96, (x, Out(x.shape), 100, 1e-5), {}, expected


def vadd_case():
    a, b = normal(1000), normal(1000)
    return VADD, 8, 128, (a, b, Out((1000,)), 1000), {}, a + b


def warp_sum_case():
    x = normal(4, 32)
    return WARP_SUM, 4, 32, (x, Out((1,)), 128), {}, None


CASES = {
    "vadd": vadd_case,
    "softmax": softmax_case,
    "matmul": matmul_case,
    "layernorm": layernorm_case,
}


@pytest.mark.parametrize("case", CASES)
def test_a_correct_kernel_agrees_with_numpy_and_has_no_finding(execute, case):
    source, grid, block, arguments, options, expected = CASES[case]()
    ran = execute(source, grid, block, *arguments, **options)
    assert ran.result.outcome == "ok"
    assert ran.result.findings == ()
    assert ran.result.written_inputs == ()
    np.testing.assert_allclose(ran.out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_the_thread_order_does_not_change_a_bit_of_a_correct_kernel(execute, case):
    source, grid, block, arguments, options, _ = CASES[case]()
    runs = [execute(source, grid, block, *arguments, **options, order=o) for o in ORDERS]
    assert len({run.out.tobytes() for run in runs}) == 1
    assert {run.result.findings for run in runs} == {()}
    assert len({run.result.fuel for run in runs}) == 1


def test_two_runs_give_the_same_bytes_and_the_same_findings(execute):
    broken = SOFTMAX.replace("__syncthreads();", "", 3)
    x = normal(3, 200)
    first, second = (execute(broken, 3, 128, x, Out(x.shape), 200, shared=512) for _ in range(2))
    assert first.result.findings
    assert first.result == second.result
    assert first.out.tobytes() == second.out.tobytes()


def test_half_arithmetic_is_rounded_once_per_operation(execute):
    a, b = (rng.normal(size=(4, 32)).astype(np.float16) for _ in range(2))
    ran = execute(HALF_DOT, 1, 4, a, b, Out((4,), "float16"), 16)
    assert ran.result.findings == ()
    sums = np.zeros((4, 2))
    for i in range(0, 32, 2):  # exact in float64 for one step, then rounded to half
        step = a[:, i : i + 2].astype(np.float64) * b[:, i : i + 2] + sums
        sums = step.astype(np.float16).astype(np.float64)
    expected = (sums[:, 0] + sums[:, 1]).astype(np.float16)
    assert ran.out.tobytes() == expected.tobytes()


def test_neighbouring_halves_written_by_different_threads_do_not_race(execute):
    source = r"""
    #include <cuda_fp16.h>
    extern "C" __global__ void twice(const __half* x, __half* y, int n) {
        __shared__ __half s[64];
        s[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        y[threadIdx.x] = s[63 - threadIdx.x] + s[63 - threadIdx.x];
    }
    """
    x = rng.normal(size=64).astype(np.float16)
    ran = execute(source, 1, 64, x, Out((64,), "float16"), 64)
    assert ran.result.findings == ()
    np.testing.assert_array_equal(ran.out, 2 * x[::-1])


def test_warp_synchronous_code_is_clean_and_adds_up(execute):
    source, grid, block, (x, _, n), _, _ = warp_sum_case()
    total = np.zeros(1, np.float32)
    ran = execute(source, grid, block, x, total, n)
    # The accumulator is an operand here, so that it starts at zero.
    assert ran.kinds == {"input-write"}
    np.testing.assert_allclose(ran.operands[1], x.sum(), rtol=1e-5)


def test_an_atomic_loop_over_compare_and_swap_is_no_race(execute):
    source = r"""
    __device__ void atomic_max(float* p, float v) {
        int* bits = (int*)p;
        int old = *bits, seen;
        do {
            seen = old;
            old = atomicCAS(bits, seen, __float_as_int(fmaxf(v, __int_as_float(seen))));
        } while (old != seen);
    }
    extern "C" __global__ void top(const float* x, float* out, float* y) {
        __shared__ float best;
        if (threadIdx.x == 0) best = -INFINITY;
        __syncthreads();
        atomic_max(&best, x[blockIdx.x * 64 + threadIdx.x]);
        __syncthreads();
        if (threadIdx.x == 0) y[blockIdx.x] = best;
        atomic_max(out, x[blockIdx.x * 64 + threadIdx.x]);
    }
    """
    x = normal(3, 64)
    ran = execute(source, 3, 64, x, np.full(1, -np.inf, np.float32), Out((3,)))
    assert ran.kinds == {"input-write"}
    np.testing.assert_array_equal(ran.out, x.max(1))
    assert ran.operands[1] == x.max()


def test_a_volatile_peek_before_an_atomic_is_no_race_but_a_plain_one_is(execute):
    source = r"""
    extern "C" __global__ void top(const int* x, int* out) {
        __shared__ int best;
        if (threadIdx.x == 0) best = 0;
        __syncthreads();
        if (*(volatile int*)&best < x[threadIdx.x]) atomicMax(&best, x[threadIdx.x]);
        __syncthreads();
        out[threadIdx.x] = best;
    }
    """
    x = rng.integers(0, 100, 64).astype(np.int32)
    ran = execute(source, 1, 64, x, Out((64,), "int32"))
    assert ran.result.findings == ()
    assert (ran.out == x.max()).all()
    plain = execute(source.replace("*(volatile int*)&best", "best"), 1, 64, x, Out((64,), "int32"))
    assert plain.kinds == {"race-shared"}


LAST_BLOCK = r"""
extern "C" __global__ void total(const float* x, float* partial, unsigned* done, float* out) {
    __shared__ bool last;
    partial[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    last = atomicAdd(done, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    float sum = 0.0f;
    for (int i = 0; i < gridDim.x; ++i) sum += partial[i];
    out[0] = sum;
}
"""


def test_the_last_block_may_read_what_others_published_with_a_fence(execute):
    x = normal(8)
    arguments = (x, Out((8,)), np.zeros(1, np.uint32), Out((1,)))
    ran = execute(LAST_BLOCK, 8, 1, *arguments)
    assert ran.kinds == {"input-write"}
    np.testing.assert_allclose(ran.outputs[1], x.sum(), rtol=1e-5)
    unfenced = execute(LAST_BLOCK.replace("__threadfence();", ""), 8, 1, *arguments)
    assert "race-global" in unfenced.kinds


MANY_TICKETS = r"""
extern "C" __global__ void totals(const float* x, float* partial, unsigned* done, float* out,
                                  int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    partial[blockIdx.y * columns + column] = x[blockIdx.y * columns + column];
    __threadfence();
    if (atomicAdd(&done[column], 1u) != gridDim.y - 1) return;
    float sum = 0.0f;
    for (int i = 0; i < gridDim.y; ++i) sum += partial[i * columns + column];
    out[column] = sum;
}
"""


def test_every_column_may_have_a_ticket_of_its_own(execute):
    columns, shares = 1024, 3
    x = normal(shares * columns)
    arguments = (x, Out(x.shape), np.zeros(columns, np.uint32), Out((columns,)), columns)
    for _ in range(2):  # a second launch has tickets at the same addresses
        ran = execute(MANY_TICKETS, (columns // 128, shares), 128, *arguments)
        assert ran.kinds == {"input-write"}
        expected = x.reshape(shares, columns).sum(axis=0)
        np.testing.assert_allclose(ran.outputs[1], expected, rtol=1e-4, atol=1e-5)
    unfenced = MANY_TICKETS.replace("__threadfence();", "")
    ran = execute(unfenced, (columns // 128, shares), 128, *arguments)
    assert "race-global" in ran.kinds


def test_warp_operations_know_their_segments_and_masks(execute):
    source = r"""
    extern "C" __global__ void ops(int* out) {
        int lane = threadIdx.x;
        int* mine = out + lane * 8;
        mine[0] = __shfl_up_sync(0xffffffffu, lane, 1, 8);
        mine[1] = __shfl_xor_sync(0xffffffffu, lane, 5);
        mine[2] = __shfl_sync(0xffffffffu, lane, 3, 16);
        mine[3] = __ballot_sync(0xffffffffu, lane % 3 == 0);
        mine[4] = lane < 16 ? __reduce_add_sync(0x0000ffffu, lane)
                            : __reduce_max_sync(0xffff0000u, -lane);
        mine[5] = __any_sync(0xffffffffu, lane == 9) + 2 * __all_sync(0xffffffffu, lane < 31);
        mine[6] = __match_any_sync(0xffffffffu, lane % 4);
        mine[7] = __syncthreads_count(lane < 5) + 100 * __syncthreads_and(1);
        mine[7] += 200 * __syncthreads_or(0);
    }
    """
    ran = execute(source, 1, 32, Out((32, 8), "int32"))
    assert ran.result.findings == ()
    lane = np.arange(32)
    expected = np.stack(
        [
            np.where(lane % 8 == 0, lane, lane - 1),
            lane ^ 5,
            lane // 16 * 16 + 3,
            np.full(32, sum(1 << i for i in range(0, 32, 3))),
            np.where(lane < 16, 120, -16),
            np.full(32, 1),
            sum(((1 << k) * (k % 4 == lane % 4)) for k in range(32)),
            np.full(32, 105),
        ],
        axis=1,
    )
    np.testing.assert_array_equal(ran.out, expected.astype(np.uint32).view(np.int32))
