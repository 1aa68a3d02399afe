"""Faults that cannot show are not made: launch geometry, choice of thread, lost signs."""

import pytest

from kernelassay.mutation.catalogue import RULES
from tests.mutation.family_facts import CONV, MATMUL, ROW_SUM, changed_lines, texts

SCALE = """
extern "C" __global__ void scale(const float* x, float* y, long long n) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long vectors = n / 4;
    for (long long v = first; v < vectors; v += stride) {
        float4 a = reinterpret_cast<const float4*>(x)[v];
        a.x *= 2.0f;
        a.y *= 2.0f;
        a.z *= 2.0f;
        a.w *= 2.0f;
        reinterpret_cast<float4*>(y)[v] = a;
    }
    for (long long i = vectors * 4 + first; i < n; i += stride) y[i] = 2.0f * x[i];
}

void launch(const float* x, float* y, long long n) {
    long long blocks = (n + 255) / 256;
    if (blocks > 64) blocks = 64;
    scale<<<dim3(blocks), dim3(256)>>>(x, y, n);
}
"""

TOTAL = """
__device__ float block_sum(float v) {
    __shared__ float partial[32];
    __shared__ float total;
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < blockDim.x / 32 ? partial[lane] : 0.0f;
        for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
        if (lane == 0) total = v;
    }
    __syncthreads();
    return total;
}

extern "C" __global__ void total(const float* x, float* y, long long n) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    float sum = 0.0f;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        sum += x[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

void launch(const float* x, float* y, long long n) {
    total<<<dim3(8), dim3(256)>>>(x, y, n);
}
"""

BUTTERFLY = """
extern "C" __global__ void row_max(const float* x, float* y, int cols) {
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.x * 4 + threadIdx.x / 32;
    float best = x[(long long)row * cols];
    for (int i = lane; i < cols; i += 32) best = fmaxf(best, x[(long long)row * cols + i]);
    for (int o = 16; o > 0; o >>= 1) best = fmaxf(best, SHUFFLE(0xffffffffu, best, o));
    if (lane == 0) y[row] = best;
}

void launch(const float* x, float* y, int rows, int cols) {
    row_max<<<dim3(rows / 4), dim3(128)>>>(x, y, cols);
}
"""

GEOMETRY = ("block-halved", "block-doubled", "block-not-warp-multiple")
GRID = ("grid-minus-one", "grid-plus-one")
ORDER = ("thread-order-swap", "grid-stride-step", "drop-batch-offset")


@pytest.mark.parametrize("name", (*GEOMETRY, *GRID, *ORDER))
def test_an_elementwise_grid_stride_kernel_has_no_fault_of_its_geometry(name: str) -> None:
    assert texts(RULES, name, SCALE) == []


@pytest.mark.parametrize("name", (*GEOMETRY, "grid-minus-one", "grid-plus-one"))
def test_a_tiled_kernel_keeps_the_faults_of_its_geometry(name: str) -> None:
    expected = 0 if name == "grid-plus-one" else 1
    assert len(texts(RULES, name, MATMUL)) >= expected


def test_a_guard_stops_an_extra_block_and_a_wrapped_coordinate_does_not() -> None:
    assert texts(RULES, "grid-plus-one", MATMUL) == []
    assert texts(RULES, "grid-plus-one", CONV) == []
    assert len(texts(RULES, "grid-plus-one", ROW_SUM)) == 1


def test_a_combine_that_counts_its_warps_takes_any_whole_number_of_them() -> None:
    assert texts(RULES, "block-halved", ROW_SUM) == []
    assert texts(RULES, "block-doubled", TOTAL) == []
    assert len(texts(RULES, "block-not-warp-multiple", TOTAL)) == 1
    fixed = TOTAL.replace("partial[32]", "partial[8]")
    assert len(texts(RULES, "block-doubled", fixed)) == 1


def test_one_thread_per_element_needs_all_its_threads_and_no_more() -> None:
    guarded = SCALE.replace(
        "for (long long v = first; v < vectors; v += stride) {", "if (first < n) {"
    )
    guarded = guarded.replace("[v]", "[first]").split("    for (long long i")[0] + "}\n"
    source = guarded + SCALE[SCALE.index("\nvoid launch") :]
    assert len(texts(RULES, "block-halved", source)) == 1
    assert texts(RULES, "block-doubled", source) == []


def test_a_sum_visited_twice_is_wrong() -> None:
    assert len(texts(RULES, "grid-stride-step", TOTAL)) == 1
    assert len(texts(RULES, "blockdim-to-griddim", TOTAL)) == 2


def test_any_thread_can_store_a_sum_that_all_have() -> None:
    lines = [changed_lines(TOTAL, t)[1] for t in texts(RULES, "relational-flip", TOTAL)]
    assert ["if (threadIdx.x != 0) y[blockIdx.x] = sum;"] not in lines
    assert ["if (warp != 0) {"] not in lines
    assert ["if (lane != 0) partial[warp] = v;"] in lines


@pytest.mark.parametrize(("shuffle", "faults"), [("__shfl_xor_sync", 0), ("__shfl_down_sync", 1)])
def test_after_a_butterfly_any_lane_can_store_the_result(shuffle: str, faults: int) -> None:
    source = BUTTERFLY.replace("SHUFFLE", shuffle)
    assert len(texts(RULES, "relational-flip", source)) == faults
    flipped = [t for t in texts(RULES, "int-const-plus-one", source) if "lane == 1" in t]
    assert len(flipped) == faults


def test_a_second_stage_of_eight_warps_needs_no_offset_of_sixteen() -> None:
    assert len(texts(RULES, "shuffle-offset-halved", TOTAL)) == 1
    assert len(texts(RULES, "shuffle-offset-halved", TOTAL.replace("dim3(256)", "dim3(1024)"))) == 2


@pytest.mark.parametrize("source", (SCALE, TOTAL, MATMUL, ROW_SUM, CONV))
def test_a_source_has_at_most_one_truncated_offset(source: str) -> None:
    assert len(texts(RULES, "index-32bit-truncation", source)) <= 1


def test_the_few_elements_past_the_last_vector_are_handled_in_one_step() -> None:
    doubled = texts(RULES, "loop-step-double", SCALE)
    assert len(doubled) == 1
    assert "v += stride * 2" in doubled[0]
