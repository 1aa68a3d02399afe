// c[M, N] = a[M, K] b[K, N]: a block computes a 32 x 32 tile of c from shared-memory tiles that
// advance 16 along K; each of the 16 x 16 threads keeps 2 x 2 outputs in registers.
#define TILE 32
#define TILE_K 16
#define THREADS 256

extern "C" __global__ void matmul_tiled(const float* __restrict__ a, const float* __restrict__ b,@BIAS_PARAMETER@
                                        float* __restrict__ c, int M, int N, int K) {
    __shared__ float tile_a[TILE][TILE_K + 1];
    __shared__ float tile_b[TILE_K][TILE + 1];
    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int thread = ty * blockDim.x + tx;
    int row0 = blockIdx.y * TILE;
    int col0 = blockIdx.x * TILE;

    float acc00 = 0.0f, acc01 = 0.0f, acc10 = 0.0f, acc11 = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE_K) {
@LOAD_A@
@LOAD_B@
        __syncthreads();
        for (int k = 0; k < TILE_K; ++k) {
            float a0 = tile_a[ty][k];
            float a1 = tile_a[ty + 16][k];
            float b0 = tile_b[k][tx];
            float b1 = tile_b[k][tx + 16];
            acc00 += a0 * b0;
            acc01 += a0 * b1;
            acc10 += a1 * b0;
            acc11 += a1 * b1;
        }
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
    matmul_tiled<<<grid, block>>>(a, b,@BIAS_ARGUMENT@ c, M, N, K);
}
