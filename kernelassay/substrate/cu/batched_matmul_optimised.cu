// c[n] = a[n] b[n] for every n of a batch. grid.z walks the batch, grid.x the rows, the one axis that
// may pass 65535 tiles. A block computes a 16 x 16 tile of c[n] from double-buffered shared-memory
// tiles, so one barrier per step along K is enough.
#define TILE 16

extern "C" __global__ void batched_matmul_tiled(const float* __restrict__ a, const float* __restrict__ b,
                                                float* __restrict__ c, int batch, int M, int N, int K) {
    __shared__ float tile_a[2][TILE][TILE + 1];
    __shared__ float tile_b[2][TILE][TILE + 1];
    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int row = blockIdx.x * TILE + ty;
    int col = blockIdx.y * TILE + tx;
    int steps = (K + TILE - 1) / TILE;

    for (int n = blockIdx.z; n < batch; n += gridDim.z) {
        const float* a_n = a + (long long)n * M * K;
        const float* b_n = b + (long long)n * K * N;
        float sum = 0.0f;
        int buffer = 0;
        for (int step = 0; step < steps; ++step) {
            int k0 = step * TILE;
@LOAD_A@
@LOAD_B@
            __syncthreads();
            for (int k = 0; k < TILE; ++k) {
                sum += tile_a[buffer][ty][k] * tile_b[buffer][k][tx];
            }
            buffer ^= 1;
        }
        if (row < M && col < N) {
            c[((long long)n * M + row) * N + col] = sum;
        }
        __syncthreads();
    }
}

void launch(const float* a, const float* b, float* c, int batch, int M, int N, int K, int max_blocks) {
    int depth = batch < max_blocks ? batch : max_blocks;
    dim3 block(TILE, TILE);
    dim3 grid((M + TILE - 1) / TILE, (N + TILE - 1) / TILE, depth);
    batched_matmul_tiled<<<grid, block>>>(a, b, c, batch, M, N, K);
}
