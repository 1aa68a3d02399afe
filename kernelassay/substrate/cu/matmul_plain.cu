// c[M, N] = a[M, K] b[K, N]: one thread per element of c, serial over K.
extern "C" __global__ void matmul(const float* __restrict__ a, const float* __restrict__ b,@bias_parameter@
                                  float* __restrict__ c, int M, int N, int K) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)M * N) return;
    long long row = index / N;
    long long col = index % N;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) {
        sum += a[@a_element@] * b[@b_element@];
    }
    c[row * N + col] = sum@plus_bias@;
}

void launch(const float* a, const float* b,@bias_launch_parameter@ float* c, int M, int N, int K) {
    long long total = (long long)M * N;
    dim3 block(256);
    dim3 grid((total + 255) / 256);
    matmul<<<grid, block>>>(a, b,@bias_argument@ c, M, N, K);
}
