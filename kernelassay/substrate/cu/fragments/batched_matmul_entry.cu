extern "C" __global__ void batched_matmul_tiled(const float* __restrict__ a, const float* __restrict__ b,
                                                float* __restrict__ c, int batch, int M, int N, int K) {
    for (int n = blockIdx.z; n < batch; n += gridDim.z) {
        multiply(a + (long long)n * M * K, b + (long long)n * K * N, c + (long long)n * M * N, M, N, K);
        __syncthreads();
    }
}

void launch(const float* a, const float* b, float* c, int batch, int M, int N, int K, int max_blocks) {
    int depth = batch < max_blocks ? batch : max_blocks;
    dim3 grid((N + @TILE_N@ - 1) / @TILE_N@, (M + @TILE_M@ - 1) / @TILE_M@, depth);
    batched_matmul_tiled<<<grid, dim3(THREADS)>>>(a, b, c, batch, M, N, K);
}
