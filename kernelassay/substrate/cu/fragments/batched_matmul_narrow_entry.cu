extern "C" __global__ void batched_matmul_tiled(const @T@* __restrict__ a, const @T@* __restrict__ b,
                                                float* __restrict__ c, int batch, int M, int N, int K) {
    for (int n = blockIdx.z; n < batch; n += gridDim.z) {
        multiply(a + (long long)n * M * K, b + (long long)n * K * N, c + (long long)n * M * N, M, N, K);
        __syncthreads();
    }
}

void launch(const float* a, const float* b, float* c, int batch, int M, int N, int K, int max_blocks) {
    long long size_a = (long long)batch * M * K;
    long long size_b = (long long)batch * K * N;
    int depth = batch < max_blocks ? batch : max_blocks;
    @T@* narrow_a;
    @T@* narrow_b;
    cudaMalloc(&narrow_a, size_a * sizeof(@T@));
    cudaMalloc(&narrow_b, size_b * sizeof(@T@));
    narrow<<<dim3((size_a + 1023) / 1024), dim3(256)>>>(a, narrow_a, size_a);
    narrow<<<dim3((size_b + 1023) / 1024), dim3(256)>>>(b, narrow_b, size_b);
    dim3 grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE, depth);
    batched_matmul_tiled<<<grid, dim3(THREADS)>>>(narrow_a, narrow_b, c, batch, M, N, K);
}
