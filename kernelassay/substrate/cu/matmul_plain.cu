// c[M, N] = a[M, K] b[K, N]: one thread per element of c, serial over K.
extern "C" __global__ void matmul(const float* __restrict__ a, const float* __restrict__ b,@BIAS_PARAMETER@
                                  float* __restrict__ c, int M, int N, int K) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)M * N) return;
    long long row = index / N;
    long long col = index % N;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) {
        sum += a[@A_ELEMENT@] * b[@B_ELEMENT@];
    }
    c[row * N + col] = sum@PLUS_BIAS@;
}

void launch(const float* a, const float* b,@BIAS_LAUNCH_PARAMETER@ float* c, int M, int N, int K) {
    long long total = (long long)M * N;
    dim3 block(256);
    dim3 grid((total + 255) / 256);
    matmul<<<grid, block>>>(a, b,@BIAS_ARGUMENT@ c, M, N, K);
}
