extern "C" __global__ void matmul_tiled(const @T@* __restrict__ a, const @T@* __restrict__ b,@BIAS_PARAMETER@
                                        float* __restrict__ c, int M, int N, int K) {
    multiply(a, b,@BIAS_ARGUMENT@ c, M, N, K);
}

void launch(const float* a, const float* b,@BIAS_LAUNCH_PARAMETER@ float* c, int M, int N, int K) {
    long long size_a = (long long)M * K;
    long long size_b = (long long)K * N;
    @T@* narrow_a;
    @T@* narrow_b;
    cudaMalloc(&narrow_a, size_a * sizeof(@T@));
    cudaMalloc(&narrow_b, size_b * sizeof(@T@));
    narrow<<<dim3((size_a + 1023) / 1024), dim3(256)>>>(a, narrow_a, size_a);
    narrow<<<dim3((size_b + 1023) / 1024), dim3(256)>>>(b, narrow_b, size_b);
    dim3 grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
    matmul_tiled<<<grid, dim3(THREADS)>>>(narrow_a, narrow_b,@BIAS_ARGUMENT@ c, M, N, K);
}
