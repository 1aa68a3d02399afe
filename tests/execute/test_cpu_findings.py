"""Faulty kernels: what is reported, and what the kernel computes under the stated semantics."""

import re

import numpy as np
import pytest

from kernelassay.execute.cpu import build_images
from kernelassay.kernel import Launch, LaunchPlan, PointerArgument
from tests.execute.cpu_kernels import LAYERNORM, MATMUL, SOFTMAX, VADD, WARP_SUM
from tests.execute.runs import NAN_PATTERN, Out

PATTERN = np.uint32(0x3F003F00).view(np.float32)
rng = np.random.default_rng(3)
X = rng.normal(size=(3, 200)).astype(np.float32)


def without(source, call, index):
    """``source`` without the ``index``-th occurrence of ``call``."""
    places = [match.span() for match in re.finditer(re.escape(call), source)]
    start, end = places[index]
    return source[:start] + source[end:]


KERNELS = {
    "softmax": (SOFTMAX, 3, 128, (X, Out(X.shape), 200), 512),
    "matmul": (MATMUL, (2, 3), (8, 8), (X, X, Out((19, 10)), 19, 10, 21), 0),
    "layernorm": (LAYERNORM, 3, 96, (X, Out(X.shape), 200, 1e-5), 0),
}
BARRIERS = [
    (name, i)
    for name, kernel in KERNELS.items()
    for i in range(kernel[0].count("__syncthreads();"))
]


@pytest.mark.parametrize(("name", "index"), BARRIERS)
def test_every_removed_barrier_is_seen_and_the_run_goes_on(execute, name, index):
    source, grid, block, arguments, shared = KERNELS[name]
    ran = execute(
        without(source, "__syncthreads();", index), grid, block, *arguments, shared=shared
    )
    assert ran.result.outcome == "ok"
    assert ran.kinds & {"race-shared", "uninitialised-read"}


@pytest.mark.parametrize("index", range(WARP_SUM.count("__syncwarp();")))
def test_every_removed_warp_barrier_is_seen(execute, index):
    broken = without(WARP_SUM, "__syncwarp();", index)
    ran = execute(broken, 3, 32, X, np.zeros(1, np.float32), 96)
    assert "race-shared" in ran.kinds


def test_a_read_past_the_end_gives_the_pattern(execute):
    a = np.arange(10, dtype=np.float32)
    broken = VADD.replace("i < n", "i < n + 1").replace("c[i] =", "c[i - (i == n)] =")
    ran = execute(broken, 1, 32, a, np.zeros(11, np.float32), Out((10,)), 10)
    assert ran.result.outcome == "ok"
    finding = ran.finding("oob-global-read")
    assert finding.count == 1
    assert "vadd block (0,0,0) thread (10,0,0), buffer arg0 byte 40 size 4" in finding.detail
    assert ran.out[9] == PATTERN
    np.testing.assert_array_equal(ran.out[:9], a[:9])


def test_a_read_before_the_start_gives_the_pattern(execute):
    a = np.arange(10, dtype=np.float32)
    ran = execute(VADD.replace("a[i]", "a[i - 1]"), 1, 32, a, 0 * a, Out((10,)), 10)
    assert ran.finding("oob-global-read").count == 1
    np.testing.assert_array_equal(ran.out, np.r_[PATTERN, a[:9]])


def test_a_write_past_the_end_is_lost(execute):
    source = r"""
    extern "C" __global__ void spill(float* y, float* z, int n) {
        int i = threadIdx.x;
        y[i] = i;
        __syncthreads();
        if (i < n) z[i] = y[i + n];
    }
    """
    ran = execute(source, 1, 8, Out((4,)), Out((4,)), 4)
    assert ran.finding("oob-global-write").count == 4
    np.testing.assert_array_equal(ran.outputs[0], [0, 1, 2, 3])
    np.testing.assert_array_equal(ran.outputs[1], np.full(4, PATTERN))


def test_a_write_after_unordered_reads_of_one_warp_is_a_race(execute):
    source = r"""
    extern "C" __global__ void overwrite(const float* x, float* y) {
        __shared__ float s[1];
        if (threadIdx.x == 0) s[0] = x[0];
        __syncwarp();
        float sum = s[0];
        if (threadIdx.x == 2) sum += *(volatile float*)s + 1.0f;
        SYNC
        if (threadIdx.x == 2) s[0] = sum;
        y[threadIdx.x] = sum;
    }
    """
    good = execute(source.replace("SYNC", "__syncwarp();"), 1, 4, X, Out((4,)))
    assert good.result.findings == ()
    # Lane 2 is the last reader in either order; the other lanes' reads must not be forgotten.
    for order in ("forward", "reverse"):
        ran = execute(source.replace("SYNC", ""), 1, 3, X, Out((4,)), order=order)
        assert ran.kinds == {"race-shared"}


def test_sub_masks_order_only_their_own_lanes(execute):
    source = r"""
    extern "C" __global__ void pairs(const float* x, float* y) {
        __shared__ float s[32];
        int t = threadIdx.x;
        s[t] = x[t];
        unsigned half = t < 16 ? 0x0000ffffu : 0xffff0000u;
        __syncwarp(half);
        y[t] = s[t ^ DISTANCE];
    }
    """
    near = execute(source.replace("DISTANCE", "3"), 1, 32, X, Out((32,)))
    assert near.result.findings == ()
    far = execute(source.replace("DISTANCE", "16"), 1, 32, X, Out((32,)))
    assert "race-shared" in far.kinds


def test_an_access_far_outside_is_a_crash_and_the_process_lives(execute):
    a = np.zeros(10, np.float32)
    for index in ("i + 300000", "i - 300000", "(size_t)i * 123456789123ull + (1ull << 36)"):
        ran = execute(VADD.replace("a[i]", f"a[{index}]"), 1, 32, a, a, Out((10,)), 10)
        assert ran.result.outcome == "crash"
        assert "illegal address" in ran.result.detail
    null = VADD.replace("a[i]", "((const float*)nullptr)[i]")
    assert execute(null, 1, 32, a, a, Out((10,)), 10).result.outcome == "crash"
    assert execute(VADD, 1, 32, a, a, Out((10,)), 10).result.outcome == "ok"


def test_shared_overruns_are_seen_per_array(execute):
    source = r"""
    extern "C" __global__ void shift(float* y) {
        __shared__ float s[32];
        __shared__ float neighbour[32];
        s[threadIdx.x] = 1.0f;
        neighbour[threadIdx.x] = 2.0f;
        __syncthreads();
        y[threadIdx.x] = s[threadIdx.x + 1];
    }
    """
    ran = execute(source, 1, 32, Out((32,)))
    finding = ran.finding("oob-shared-read")
    assert finding.count == 1
    assert "shared array s byte 128" in finding.detail
    assert ran.out[31] == PATTERN
    assert (ran.out[:31] == 1).all()
    written = execute(source.replace("s[threadIdx.x] =", "s[threadIdx.x + 1] ="), 1, 32, Out((32,)))
    assert written.kinds == {"oob-shared-write", "oob-shared-read"}


def test_dynamic_shared_memory_ends_where_the_launch_says(execute):
    assert execute(SOFTMAX, 3, 128, X, Out(X.shape), 200, shared=512).result.findings == ()
    ran = execute(SOFTMAX, 3, 128, X, Out(X.shape), 200, shared=508)
    assert ran.result.outcome == "ok"
    assert {"oob-shared-write", "oob-shared-read"} <= ran.kinds


def test_uninitialised_memory_holds_the_pattern(execute):
    source = r"""
    extern "C" __global__ void sum(const float* x, float* y) {
        __shared__ float s[32];
        if (threadIdx.x < 31) s[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        y[threadIdx.x + 32 * blockIdx.x] = s[threadIdx.x];
    }
    """
    ran = execute(source, 2, 32, X, Out((2, 32)))
    assert "shared array s byte 124" in ran.finding("uninitialised-read").detail
    assert ran.finding("uninitialised-read").count == 2
    assert (ran.out[:, 31] == PATTERN).all()


def test_an_output_counts_as_uninitialised_byte_for_byte(execute):
    source = r"""
    #include <cuda_fp16.h>
    extern "C" __global__ void accumulate(const __half* x, __half* y) {
        if (threadIdx.x % 2 == 0) y[threadIdx.x] = x[threadIdx.x];
        y[threadIdx.x] += x[threadIdx.x];
    }
    """
    x = np.ones(8, np.float16)
    ran = execute(source, 1, 8, x, Out((8,), "float16"))
    assert ran.finding("uninitialised-read").count == 4
    np.testing.assert_array_equal(ran.out[::2], 2.0)


def test_bytes_nobody_writes_keep_what_the_caller_put_there(execute):
    ran = execute(VADD, 1, 32, X, X, Out((10,)), 7)
    assert (ran.out.view(np.uint32)[7:] == NAN_PATTERN).all()


def test_blocks_that_write_the_same_element_race(execute):
    broken = VADD.replace("c[i] =", "c[threadIdx.x] =")
    ran = execute(broken, 2, 32, X, X, Out((32,)), 64)
    detail = ran.finding("race-global").detail
    assert "block (1,0,0)" in detail
    assert "another block" in detail


def test_an_atomic_made_plain_is_a_race(execute):
    source = r"""
    extern "C" __global__ void count(float* y) {
        __shared__ float n;
        if (threadIdx.x == 0) n = 0.0f;
        __syncthreads();
        atomicAdd(&n, 1.0f);
        __syncthreads();
        y[threadIdx.x] = n;
    }
    """
    assert execute(source, 1, 64, Out((64,))).result.findings == ()
    plain = execute(source.replace("atomicAdd(&n, 1.0f)", "n += 1.0f"), 1, 64, Out((64,)))
    assert plain.kinds == {"race-shared"}


def test_diverged_barriers_are_recorded_and_released(execute):
    source = r"""
    extern "C" __global__ void diverge(int* y) {
        if (threadIdx.x < 16) { __syncthreads(); y[threadIdx.x] = 1; }
        else { __syncthreads(); y[threadIdx.x] = 2; }
    }
    """
    ran = execute(source, 1, 32, Out((32,), "int32"))
    assert ran.result.outcome == "ok"
    assert ran.finding("barrier-divergence").count == 1
    assert ran.out.tolist() == [1] * 16 + [2] * 16


DIVERGING = {
    "barriers": "if (threadIdx.x < 16) { __syncthreads(); } else { __syncthreads(); }",
    "votes": "if (threadIdx.x < 16) __syncthreads_or(1); else __syncthreads_or(0);",
    "shuffles": """if (threadIdx.x < 16) y[0] = __shfl_sync(~0u, 1, 0);
        else y[1] = __shfl_sync(~0u, 2, 0);""",
    "returned": "if (threadIdx.x > 16) return; y[0] = __ballot_sync(~0u, 1);",
}


def test_findings_say_the_same_whatever_a_kernel_is_compiled_with(device, compiler, tmp_path):
    """And where they name a line, it is one of the kernel's own."""
    sources = {
        name: f"""extern "C" __global__ void k(int* y) {{
        y[threadIdx.x] = 0;
        {body}
    }}
    void launch(int* y) {{ k<<<1, 32>>>(y); }}
    """
        for name, body in DIVERGING.items()
    }
    together = build_images(sources, tmp_path / "together", compiler)
    launch = Launch("k", (1, 1, 1), (32, 1, 1), 0, (PointerArgument("y"),))
    for name, source in sources.items():
        alone = build_images({name: source}, tmp_path / name, compiler)
        found = []
        for image in (alone[name], together[name]):
            y = device.buffer("y", 128, role="output")
            ran = device.run(image, LaunchPlan((), (launch,)), {"y": y}, fuel=10**6)
            found.append(ran.findings)
            y.release()
        assert found[0] == found[1], name
        assert found[0], name
        lines = [int(line) for f in found[0] for line in re.findall(r"line (\d+)", f.detail)]
        assert lines, name
        assert set(lines) <= set(range(1, 6)), name


def test_threads_that_returned_count_as_arrived(execute):
    source = r"""
    extern "C" __global__ void early(int* y) {
        if (threadIdx.x >= 20) return;
        __syncthreads();
        y[threadIdx.x] = 1;
    }
    """
    ran = execute(source, 1, 32, Out((20,), "int32"))
    assert (ran.result.outcome, ran.result.findings) == ("ok", ())


def test_a_shuffle_with_returned_lanes_goes_on_with_a_finding(execute):
    source = r"""
    extern "C" __global__ void lanes(int* y) {
        if (threadIdx.x >= 24) return;
        y[threadIdx.x] = __shfl_down_sync(0xffffffffu, (int)threadIdx.x, 8);
    }
    """
    ran = execute(source, 1, 32, Out((24,), "int32"))
    assert ran.result.outcome == "ok"
    assert ran.kinds == {"warp-divergence"}
    assert ran.out.tolist() == [*range(8, 24), *range(16, 24)]


def test_a_partial_last_warp_is_no_finding(execute):
    source = r"""
    extern "C" __global__ void ballot(unsigned* y) {
        unsigned votes = __ballot_sync(0xffffffffu, 1);
        if (threadIdx.x % 32 == 0) y[threadIdx.x / 32] = votes;
    }
    """
    ran = execute(source, 1, 40, Out((2,), "uint32"))
    assert ran.result.findings == ()
    assert ran.out.tolist() == [0xFFFFFFFF, 0xFF]


def test_waiting_for_lanes_that_wait_elsewhere_is_a_deadlock(execute):
    source = r"""
    extern "C" __global__ void stuck(int* y) {
        if (threadIdx.x < 16) __syncthreads();
        else y[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
    }
    """
    ran = execute(source, 1, 32, Out((32,), "int32"))
    assert ran.result.outcome == "timeout"
    assert ran.result.detail.startswith(
        "deadlock: 16 threads wait at a block barrier, 16 in a warp"
    )


def test_a_runaway_loop_ends_after_the_same_fuel_every_time(execute):
    broken = VADD.replace("if (i < n)", "while (i >= 0)")
    runs = [execute(broken, 1, 32, X, X, Out((32,)), 32, fuel=5000) for _ in range(2)]
    assert [run.result.outcome for run in runs] == ["timeout"] * 2
    assert runs[0].result.detail.startswith("fuel used up")
    assert [run.result.fuel for run in runs] == [5000] * 2


def test_fuel_counts_iterations_and_threads(execute):
    source = r"""
    extern "C" __global__ void loops(int* y) {
        int k = 0;
        for (int i = 0; i < 5; ++i) k++;
        while (k > 0) k--;
        do { k++; } while (k < 3);
        y[threadIdx.x] = k;
    }
    """
    # Per thread: 1 start, 5 of `for`, 6 tests of `while`, 3 tests of `do`.
    assert execute(source, 1, 4, Out((4,), "int32")).result.fuel == 4 * (1 + 5 + 6 + 3)


def test_an_endless_goto_ends_by_the_backstop(compiler, cache_dir, image_of):
    from kernelassay.execute.cpu import CpuDevice, build_runtime
    from kernelassay.kernel import Launch, LaunchPlan

    device = CpuDevice(build_runtime(compiler, cache_dir), backstop_s=0.05)
    image = image_of('extern "C" __global__ void spin() { again: goto again; }')
    plan = LaunchPlan((), (Launch("spin", (1, 1, 1), (1, 1, 1), 0, ()),))
    result = device.run(image, plan, {}, fuel=10**9)
    assert (result.outcome, "backstop" in result.detail) == ("timeout", True)


def test_integer_division_by_zero_goes_on_with_the_gpus_result(execute):
    source = r"""
    extern "C" __global__ void divide(const int* a, const int* b, int* q, int* r,
                                      long long* wide, unsigned* u) {
        int i = threadIdx.x;
        q[i] = a[i] / b[i];
        r[i] = a[i] % b[i];
        wide[i] = (long long)a[i] / (long long)b[i];
        u[i] = (unsigned)a[i] % (unsigned)b[i];
    }
    """
    a = np.array([7, -7, 12, -(2**31)], np.int32)
    b = np.array([0, 0, 5, -1], np.int32)
    outs = [Out((4,), t) for t in ("int32", "int32", "int64", "uint32")]
    ran = execute(source, 1, 4, a, b, *outs)
    assert ran.result.outcome == "ok"
    quotient, remainder, wide, unsigned = ran.outputs
    assert quotient.tolist() == [-1, -1, 2, -(2**31)]
    assert remainder.tolist() == [7, -7, 2, 0]
    assert wide.tolist() == [-1, -1, 2, 2**31]
    assert unsigned.tolist() == [7, 2**32 - 7, 2, 2**31]


@pytest.mark.parametrize("kind", ["float2", "float4", "double", "int"])
def test_a_misaligned_access_is_a_crash(execute, kind):
    source = r"""
    extern "C" __global__ void load(const char* x, TYPE* y, int offset) {
        y[threadIdx.x] = *(const TYPE*)(x + offset);
    }
    """.replace("TYPE", kind)
    fine = execute(source, 1, 1, X, Out((1,), "complex128"), 16)
    assert (fine.result.outcome, fine.result.findings) == ("ok", ())
    ran = execute(source, 1, 1, X, Out((1,), "complex128"), 2 if kind == "int" else 4)
    assert ran.result.outcome == "crash"
    assert ran.result.detail.startswith("misaligned address in load block (0,0,0)")
    assert ran.kinds == {"misaligned"}


def test_a_write_to_an_operand_is_named(execute):
    broken = VADD.replace("const float* a", "float* a").replace("c[i] =", "c[i] = a[i] =")
    ran = execute(broken, 1, 32, X, X, Out((32,)), 32)
    assert ran.result.written_inputs == ("arg0",)
    assert ran.finding("input-write").count == 32


def test_a_deep_recursion_is_a_crash(execute):
    source = r"""
    __device__ __noinline__ int down(volatile int* p, int n) {
        return n < 0 ? 0 : down(p, n + *p) + *p;
    }
    extern "C" __global__ void recurse(int* x, int* y) { *y = down(x, 1); }
    """
    ran = execute(source, 1, 1, np.ones(1, np.int32), Out((1,), "int32"))
    assert ran.result.outcome == "crash"
    assert "stack overflow" in ran.result.detail


@pytest.mark.parametrize(
    ("grid", "block", "shared", "why"),
    [
        ((0, 1, 1), 32, 0, "grid.x = 0"),
        ((1, 65536, 1), 32, 0, "grid.y = 65536"),
        (1, (1, 1, 65), 0, "block.z = 65"),
        (1, (64, 32, 1), 0, "2048 threads"),
        (1, 32, 232449, "232449 bytes"),
    ],
)
def test_geometry_no_device_accepts_is_a_launch_failure(execute, grid, block, shared, why):
    ran = execute(VADD, grid, block, X, X, Out((32,)), 32, shared=shared)
    assert ran.result.outcome == "launch-failure"
    assert why in ran.result.detail
    assert (ran.out.view(np.uint32) == NAN_PATTERN).all()


def test_too_much_static_shared_memory_is_a_launch_failure(execute):
    source = r"""
    extern "C" __global__ void big(float* y) {
        __shared__ float s[13000];
        s[threadIdx.x] = 1.0f;
        y[threadIdx.x] = s[threadIdx.x];
    }
    """
    assert execute(source, 1, 32, Out((32,))).result.outcome == "launch-failure"


@pytest.mark.parametrize(
    ("declaration", "read"),
    [
        ("float acc[4] = {1.0f, 2.0f, 3.0f, 4.0f};", "acc[4 + n - n]"),
        ("float acc[2][3] = {};", "acc[1][3 + n - n]"),
        ("float acc[4] = {};", "acc[n - n - 1]"),
        ("float4 acc[2] = {};", "acc[n - n + 2].y"),
        ("float a = n, acc0 = a; float acc[2][2] = {{acc0, a}, {a, acc0}};", "acc[1][n - n + 2]"),
        ("float acc[2][2] = {{1.0f}, {2.0f, 3.0f}};", "acc[n - n + 2][0]"),
        ("float4 acc[2] = {{1, 2, 3, 4}, {5, 6, 7, 8}};", "acc[n - n - 1].x"),
    ],
)
def test_outside_a_local_array_stands_the_pattern(execute, declaration, read):
    source = f"""
    extern "C" __global__ void kernel(float* y, int n) {{
        {declaration}
        y[threadIdx.x] = {read};
    }}
    """
    ran = execute(source, 1, 32, Out((32,)), 7)
    assert ran.result.outcome == "ok"
    assert ran.kinds == {"oob-local"}
    assert (ran.out == PATTERN).all()
