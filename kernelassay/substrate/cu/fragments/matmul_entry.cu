extern "C" __global__ void matmul_tiled(const float* __restrict__ a, const float* __restrict__ b,@BIAS_PARAMETER@
                                        float* __restrict__ c, int M, int N, int K) {
    multiply(a, b,@BIAS_ARGUMENT@ c, M, N, K);
}

void launch(const float* a, const float* b,@BIAS_LAUNCH_PARAMETER@ float* c, int M, int N, int K) {
    dim3 grid((N + @TILE_N@ - 1) / @TILE_N@, (M + @TILE_M@ - 1) / @TILE_M@);
    matmul_tiled<<<grid, dim3(THREADS)>>>(a, b,@BIAS_ARGUMENT@ c, M, N, K);
}
