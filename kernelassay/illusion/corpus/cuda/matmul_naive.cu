// A matrix product; a thread per element of the output.
// kernelassay: a = arg0
// kernelassay: b = arg1
// kernelassay: c = out[a.shape[0], b.shape[1]]
// kernelassay: m = a.shape[0]
// kernelassay: k = a.shape[1]
// kernelassay: n = b.shape[1]
// kernelassay: matmul_naive_kernel<<<(m * n + 127) / 128, 128>>>(a, b, c, m, n, k)
#include <cuda_fp16.h>

#ifdef FLOAT16
typedef half scalar;
#else
typedef float scalar;
#endif

__global__ void matmul_naive_kernel(
    const scalar* __restrict__ a, const scalar* __restrict__ b, scalar* __restrict__ c,
    int m, int n, int k) {
    const int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= m * n) return;
    const int row = element / n;
    const int column = element % n;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += float(a[row * k + i]) * float(b[i * n + column]);
    c[element] = scalar(sum);
}
