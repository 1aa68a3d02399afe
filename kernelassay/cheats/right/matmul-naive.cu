// One thread to an element.
// problem: suite/matmul_rectangular
// kernelassay: a = arg0
// kernelassay: b = arg1
// kernelassay: c = out
// kernelassay: m = a.shape[0]
// kernelassay: k = a.shape[1]
// kernelassay: n = b.shape[1]
// kernelassay: matmul<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(a, b, c, m, n, k)
__global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
    c[row * n + column] = sum;
}
