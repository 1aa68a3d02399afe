#include <cuda_fp16.h>
// c[M, N] = a[M, K] b[K, N]@EACH@ on tensor cores: one warp per 16 x 8 tile of c, operands rounded to half,
// float sums. Tiles pass through shared memory, which pads them with zeros past the matrices' edges.
#define TILE_M 16
#define TILE_N 8
#define TILE_K 16
#define THREADS 32

__device__ __forceinline__ float element_a(const float* __restrict__ a, long long row, int k, int M, int K) {
    return row < M && k < K ? a[@A_ELEMENT@] : 0.0f;
}

__device__ __forceinline__ float element_b(const float* __restrict__ b, int k, long long col, int K, int N) {
    return k < K && col < N ? b[@B_ELEMENT@] : 0.0f;
}

__device__ __forceinline__ unsigned int pair(const __half* first) {
    return *reinterpret_cast<const unsigned int*>(first);
}

// c += a b for the fragments of one warp (a 16 x 16, b 16 x 8, c 16 x 8).
__device__ __forceinline__ void multiply_fragments(float* c, const unsigned int* a, const unsigned int* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ void multiply(const float* __restrict__ a, const float* __restrict__ b,@BIAS_PARAMETER@
                         float* __restrict__ c, int M, int N, int K) {
    __shared__ __half tile_a[TILE_M][TILE_K];
    __shared__ __half tile_b[TILE_N][TILE_K];  // column by column
    int row0 = blockIdx.y * TILE_M;
    int col0 = blockIdx.x * TILE_N;
    int lane = threadIdx.x;
    int group = lane / 4;
    int k = lane % 4 * 2;

    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k0 = 0; k0 < K; k0 += TILE_K) {
        for (int i = lane; i < TILE_M * TILE_K; i += THREADS) {
            tile_a[i / TILE_K][i % TILE_K] = __float2half(element_a(a, row0 + i / TILE_K, k0 + i % TILE_K, M, K));
        }
        for (int i = lane; i < TILE_N * TILE_K; i += THREADS) {
            tile_b[i / TILE_K][i % TILE_K] = __float2half(element_b(b, k0 + i % TILE_K, col0 + i / TILE_K, K, N));
        }
        __syncwarp();
        unsigned int left[4];
        unsigned int right[2];
        left[0] = pair(&tile_a[group][k]);
        left[1] = pair(&tile_a[group + 8][k]);
        left[2] = pair(&tile_a[group][k + 8]);
        left[3] = pair(&tile_a[group + 8][k + 8]);
        right[0] = pair(&tile_b[group][k]);
        right[1] = pair(&tile_b[group][k + 8]);
        multiply_fragments(sums, left, right);
        __syncwarp();
    }

    for (int i = 0; i < 4; ++i) {
        int row = row0 + group + i / 2 * 8;
        int col = col0 + k + i % 2;
        if (row < M && col < N) {
            c[(long long)row * N + col] = sums[i]@PLUS_BIAS@;
        }
    }
}

@ENTRY@
