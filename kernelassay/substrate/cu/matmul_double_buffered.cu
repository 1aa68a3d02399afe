// c[M, N] = a[M, K] b[K, N]: a block computes a 32 x 32 tile of c, 2 x 2 outputs per thread, from two
// pairs of shared-memory tiles: while one is multiplied, the next elements are on their way.
#define TILE 32
#define TILE_K 8

__device__ __forceinline__ float element_a(const float* __restrict__ a, long long row, int k, int M, int K) {
    return row < M && k < K ? a[@A_ELEMENT@] : 0.0f;
}

__device__ __forceinline__ float element_b(const float* __restrict__ b, int k, long long col, int K, int N) {
    return k < K && col < N ? b[@B_ELEMENT@] : 0.0f;
}

extern "C" __global__ void matmul_buffered(const float* __restrict__ a, const float* __restrict__ b,@BIAS_PARAMETER@
                                           float* __restrict__ c, int M, int N, int K) {
    __shared__ float tile_a[2][TILE_K][TILE + 1];
    __shared__ float tile_b[2][TILE_K][TILE + 1];
    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int thread = ty * blockDim.x + tx;
    int row0 = blockIdx.y * TILE;
    int col0 = blockIdx.x * TILE;
    int ka = thread % TILE_K;
    int ra = thread / TILE_K;
    int kb = thread / TILE;
    int cb = thread % TILE;

    float acc00 = 0.0f, acc01 = 0.0f, acc10 = 0.0f, acc11 = 0.0f;
    tile_a[0][ka][ra] = element_a(a, row0 + ra, ka, M, K);
    tile_b[0][kb][cb] = element_b(b, kb, col0 + cb, K, N);
    __syncthreads();
    int buffer = 0;
    for (int k0 = 0; k0 < K; k0 += TILE_K) {
        float next_a = element_a(a, row0 + ra, k0 + TILE_K + ka, M, K);
        float next_b = element_b(b, k0 + TILE_K + kb, col0 + cb, K, N);
        for (int k = 0; k < TILE_K; ++k) {
            float a0 = tile_a[buffer][k][ty];
            float a1 = tile_a[buffer][k][ty + 16];
            float b0 = tile_b[buffer][k][tx];
            float b1 = tile_b[buffer][k][tx + 16];
            acc00 += a0 * b0;
            acc01 += a0 * b1;
            acc10 += a1 * b0;
            acc11 += a1 * b1;
        }
        buffer ^= 1;
        tile_a[buffer][ka][ra] = next_a;
        tile_b[buffer][kb][cb] = next_b;
        __syncthreads();
    }

    float acc[2][2] = {{acc00, acc01}, {acc10, acc11}};
    for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
            int row = row0 + ty + 16 * i;
            int col = col0 + tx + 16 * j;
            if (row < M && col < N) {
                c[(long long)row * N + col] = acc[i][j]@PLUS_BIAS@;
            }
        }
    }
}

void launch(const float* a, const float* b,@BIAS_LAUNCH_PARAMETER@ float* c, int M, int N, int K) {
    dim3 block(16, 16);
    dim3 grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
    matmul_buffered<<<grid, block>>>(a, b,@BIAS_ARGUMENT@ c, M, N, K);
}
