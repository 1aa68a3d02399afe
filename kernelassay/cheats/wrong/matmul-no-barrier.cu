// Tiles without the barrier after their use.
// problem: suite/matmul_rectangular
// caught by: tolerance
// kernelassay: a = arg0
// kernelassay: b = arg1
// kernelassay: c = out
// kernelassay: m = a.shape[0]
// kernelassay: k = a.shape[1]
// kernelassay: n = b.shape[1]
// kernelassay: matmul<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(a, b, c, m, n, k)
#define TILE 16
__global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float left[TILE][TILE];
    __shared__ float right[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        int i = start + threadIdx.x;
        int j = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < m && i < k ? a[row * k + i] : 0.0f;
        right[threadIdx.y][threadIdx.x] = j < k && column < n ? b[j * n + column] : 0.0f;
        __syncthreads();
        for (int t = 0; t < TILE; ++t) sum += left[threadIdx.y][t] * right[t][threadIdx.x];
    }
    if (row < m && column < n) c[row * n + column] = sum;
}
