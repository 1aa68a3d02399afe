"""Helpers for the tests of one rule family."""

from __future__ import annotations

from collections.abc import Sequence

from kernelassay.mutation.engine import apply
from kernelassay.mutation.rule import Rule
from kernelassay.mutation.tree import KernelTree

CATALOGUE: dict[str, str] = {
    "boundary": """guard-delete guard-off-by-one-loose guard-off-by-one-tight guard-wrong-size
        guard-drop-conjunct halo-drop-lower halo-drop-upper halo-off-by-one halo-clamp
        loop-start-plus-one loop-end-minus-one loop-end-plus-one loop-end-inclusive
        loop-step-double loop-skip-last-tile tail-drop tail-mask-full grid-ceil-to-floor
        grid-minus-one grid-plus-one grid-axis-swap block-halved block-doubled
        block-not-warp-multiple shared-bytes-halved first-element-skip last-element-skip
        last-block-skip power-of-two-reduction window-clip-off tile-edge-unguarded
        size-round-down early-exit-block empty-slice-init""",
    "synchronization": """barrier-delete barrier-to-syncwarp barrier-to-fence barrier-hoist
        barrier-into-branch loop-tail-barrier-delete syncwarp-delete atomic-to-plain
        shuffle-direction shuffle-offset-halved shuffle-mask-narrow last-warp-skip volatile-drop
        threadfence-drop double-buffer-no-flip""",
}


def texts(rules: Sequence[Rule], name: str, source: str) -> list[str]:
    """All sources that the rule ``name`` makes of ``source``, in order."""
    rule = next(rule for rule in rules if rule.id == name)
    return [apply(source, mutation) for mutation in rule.find(KernelTree(source))]


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """The stripped lines that only ``before`` has, and those that only ``after`` has."""
    old, new = before.splitlines(), after.splitlines()
    return [x.strip() for x in old if x not in new], [x.strip() for x in new if x not in old]


MATMUL = """
#define TILE 16
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int M, int N, int K) {
    __shared__ float sa[TILE][TILE];
    __shared__ float sb[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        int ak = t * TILE + threadIdx.x;
        int bk = t * TILE + threadIdx.y;
        sa[threadIdx.y][threadIdx.x] = row < M && ak < K ? a[row * K + ak] : 0.0f;
        sb[threadIdx.y][threadIdx.x] = bk < K && col < N ? b[bk * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += sa[threadIdx.y][k] * sb[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) c[row * N + col] = sum;
}

void launch(const float* a, const float* b, float* c, int M, int N, int K) {
    dim3 block(TILE, TILE);
    dim3 grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
    matmul<<<grid, block>>>(a, b, c, M, N, K);
}
"""

ROW_SUM = """
__device__ float block_sum(float v) {
    __shared__ float partial[32];
    int lane = threadIdx.x & 31;
    int warp = threadIdx.x >> 5;
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < blockDim.x / 32 ? partial[lane] : 0.0f;
        for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
    }
    return v;
}

extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    const float* row = x + (long long)blockIdx.x * cols;
    const float4* row4 = (const float4*)row;
    int vectors = cols % 4 == 0 ? cols / 4 : 0;
    float v = 0.0f;
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) v += row4[i].x;
    for (int i = vectors * 4 + threadIdx.x; i < cols; i += blockDim.x) v += row[i];
    v = block_sum(v);
    if (threadIdx.x == 0) y[blockIdx.x] = v / cols;
}

void launch(const float* x, float* y, int rows, int cols) {
    int threads = 256;
    row_sum<<<rows, threads>>>(x, y, cols);
}
"""

CONV = """
extern "C" __global__ void conv(const float* x, const float* w, float* y, int H, int W, int OH,
                                int OW, int K, int pad) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= OH * OW) return;
    int oh = index / OW, ow = index % OW;
    float sum = 0.0f;
    for (int kh = 0; kh < K; ++kh) {
        int ih = oh + kh - pad;
        if (ih < 0 || ih >= H) continue;
        for (int kw = 0; kw < K; ++kw) {
            int iw = ow + kw - pad;
            if (iw >= 0 && iw < W) sum += x[ih * W + iw] * w[kh * K + kw];
        }
    }
    y[index] = sum;
}

void launch(const float* x, const float* w, float* y, int H, int W, int OH, int OW, int K,
            int pad) {
    int blocks = (OH * OW + 255) / 256;
    if (blocks > 1024) blocks = 1024;
    conv<<<blocks, 256>>>(x, w, y, H, W, OH, OW, K, pad);
}
"""

SOURCES = {"matmul": MATMUL, "row_sum": ROW_SUM, "conv": CONV}
