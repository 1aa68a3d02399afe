"""Block and tile groups of cooperative_groups mean what their intrinsics mean."""

import numpy as np
import pytest

from tests.execute.runs import Out

HEAD = """\
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
"""
THREADS = 96
X = np.random.default_rng(5).integers(-50, 50, THREADS).astype(np.int32)


def tile(size, expression):
    return (
        HEAD
        + f"""\
extern "C" __global__ void k(const int* x, int* y) {{
    cg::thread_block block = cg::this_thread_block();
    auto t = cg::tiled_partition<{size}>(block);
    const int i = block.thread_rank();
    y[i] = {expression};
}}
"""
    )


def groups(size):
    return X.reshape(-1, size)


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("t.thread_rank() + 100 * t.meta_group_rank()", lambda n, i: i % n + 100 * (i // n)),
        ("t.size() + 100 * t.meta_group_size()", lambda n, i: 0 * i + n + 100 * (THREADS // n)),
        ("cg::reduce(t, x[i], cg::plus<int>())", lambda n, i: groups(n).sum(1)[i // n]),
        ("cg::reduce(t, x[i], cg::less<int>())", lambda n, i: groups(n).min(1)[i // n]),
        ("cg::reduce(t, x[i], cg::greater<int>())", lambda n, i: groups(n).max(1)[i // n]),
        ("t.shfl(x[i], 1)", lambda n, i: groups(n)[:, 1][i // n]),
        ("t.shfl_xor(x[i], 1)", lambda n, i: X[i ^ 1]),
        ("t.shfl_down(x[i], 1)", lambda n, i: np.where(i % n + 1 < n, X[(i + 1) % THREADS], X[i])),
        ("t.any(x[i] > 40)", lambda n, i: (groups(n) > 40).any(1)[i // n]),
        ("t.all(x[i] > -40)", lambda n, i: (groups(n) > -40).all(1)[i // n]),
        ("__popc(t.ballot(x[i] > 0))", lambda n, i: (groups(n) > 0).sum(1)[i // n]),
    ],
)
def test_a_tile_of_each_size(execute, size, expression, expected):
    ran = execute(tile(size, expression), 1, THREADS, X, Out((THREADS,), "int32"))
    assert ran.result.findings == ()
    np.testing.assert_array_equal(ran.out, expected(size, np.arange(THREADS)))


def test_the_last_tile_of_a_block_may_be_short(execute):
    source = tile(32, "cg::reduce(t, x[i], cg::plus<int>())").replace("x[i], ", "1 + 0 * x[i], ")
    ran = execute(source, 1, 48, X[:48], Out((48,), "int32"))
    assert ran.result.outcome == "ok"


def test_a_function_may_be_the_operator(execute):
    combine = "__device__ __forceinline__ int odd(int a, int b) { return a ^ b; }\n"
    source = combine + tile(32, "cg::reduce(t, x[i], odd)")
    ran = execute(source, 1, THREADS, X, Out((THREADS,), "int32"))
    expected = np.bitwise_xor.reduce(groups(32), axis=1)
    np.testing.assert_array_equal(ran.out, np.repeat(expected, 32))


SHIFT = (
    HEAD
    + """\
extern "C" __global__ void k(const int* x, int* y) {
    __shared__ int s[96];
    cg::thread_block block = cg::this_thread_block();
    s[threadIdx.x] = x[threadIdx.x];
    block.sync();
    y[threadIdx.x] = s[(threadIdx.x + 33) % 96];
}
"""
)


def test_a_block_barrier_orders_shared_memory_and_its_loss_is_a_race(execute):
    whole = execute(SHIFT, 1, THREADS, X, Out((THREADS,), "int32"))
    assert whole.result.findings == ()
    np.testing.assert_array_equal(whole.out, np.roll(X, -33))
    broken = execute(SHIFT.replace("block.sync();", ""), 1, THREADS, X, Out((THREADS,), "int32"))
    assert broken.kinds & {"race-shared", "uninitialised-read"}


def test_two_barriers_on_two_lines_are_told_apart(execute):
    divergent = SHIFT.replace(
        "block.sync();", "if (threadIdx.x < 64)\n block.sync();\n else\n cg::sync(block);"
    )
    ran = execute(divergent, 1, THREADS, X, Out((THREADS,), "int32"))
    assert "barrier-divergence" in ran.kinds
