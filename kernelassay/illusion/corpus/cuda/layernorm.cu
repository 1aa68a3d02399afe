// Rows shifted and scaled to mean 0 and variance 1; a block per row, two passes, shared-memory trees.
// kernelassay: x = arg0
// kernelassay: y = out[x.shape]
// kernelassay: n = x.numel
// kernelassay: columns = x.shape[-1]
// kernelassay: layernorm_kernel<<<n / columns, THREADS>>>(x, y, columns)
#include <cuda_fp16.h>

#ifdef FLOAT16
typedef half scalar;
#else
typedef float scalar;
#endif

#define THREADS 128

__device__ float block_sum(float v, float* partial) {
    partial[threadIdx.x] = v;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step >>= 1) {
        if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
        __syncthreads();
    }
    v = partial[0];
    __syncthreads();
    return v;
}

__global__ void layernorm_kernel(const scalar* __restrict__ x, scalar* __restrict__ y, int columns) {
    __shared__ float partial[THREADS];
    const scalar* row = x + size_t(blockIdx.x) * columns;
    const float first = float(row[0]);  // off it, a small spread far from 0 keeps its digits
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += THREADS) sum += float(row[i]) - first;
    const float mean = block_sum(sum, partial) / columns;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        const float off = float(row[i]) - first - mean;
        squares += off * off;
    }
    const float scale = rsqrtf(block_sum(squares, partial) / columns + 1e-5f);
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        y[size_t(blockIdx.x) * columns + i] = scalar((float(row[i]) - first - mean) * scale);
    }
}
