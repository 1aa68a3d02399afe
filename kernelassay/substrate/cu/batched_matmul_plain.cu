// c[n] = a[n] b[n] for every n of a batch: one thread per element of c, serial over K.
extern "C" __global__ void batched_matmul(const float* __restrict__ a, const float* __restrict__ b,
                                          float* __restrict__ c, int batch, int M, int N, int K) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)batch * M * N) return;
    long long col = index % N;
    long long row = index / N % M;
    long long n = index / N / M;
    const float* a_n = a + n * M * K;
    const float* b_n = b + n * K * N;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) {
        sum += a_n[@A_ELEMENT@] * b_n[@B_ELEMENT@];
    }
    c[(n * M + row) * N + col] = sum;
}

void launch(const float* a, const float* b, float* c, int batch, int M, int N, int K, int max_blocks) {
    long long total = (long long)batch * M * N;
    dim3 block(256);
    dim3 grid((total + 255) / 256);
    batched_matmul<<<grid, block>>>(a, b, c, batch, M, N, K);
}
