// A matrix product; a block per tile of 16 by 16, both operands staged in shared memory.
// kernelassay: a = arg0
// kernelassay: b = arg1
// kernelassay: c = out[a.shape[0], b.shape[1]]
// kernelassay: m = a.shape[0]
// kernelassay: k = a.shape[1]
// kernelassay: n = b.shape[1]
// kernelassay: matmul_kernel<<<dim3((n + TILE - 1) / TILE, (m + TILE - 1) / TILE), dim3(TILE, TILE)>>>(
// kernelassay:     a, b, c, m, n, k)
#include <cuda_fp16.h>

#ifdef FLOAT16
typedef half scalar;
#else
typedef float scalar;
#endif

#define TILE 16

__global__ void matmul_kernel(
    const scalar* __restrict__ a, const scalar* __restrict__ b, scalar* __restrict__ c,
    int m, int n, int k) {
    __shared__ float left[TILE][TILE];
    __shared__ float right[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y;
    const int column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        const int across = start + threadIdx.x;
        const int down = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < m && across < k ? float(a[row * k + across]) : 0.0f;
        right[threadIdx.y][threadIdx.x] =
            down < k && column < n ? float(b[down * n + column]) : 0.0f;
        __syncthreads();
        const int depth = min(TILE, k - start);
        for (int t = 0; t < depth; ++t) sum += left[threadIdx.y][t] * right[t][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = scalar(sum);
}
