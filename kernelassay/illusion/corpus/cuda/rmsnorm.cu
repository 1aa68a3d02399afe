// Rows over their root mean square; a block per row, sums by shuffles and shared memory.
// kernelassay: x = arg0
// kernelassay: y = out[x.shape]
// kernelassay: n = x.numel
// kernelassay: columns = x.shape[-1]
// kernelassay: rmsnorm_kernel<<<n / columns, THREADS>>>(x, y, columns)
#include <cuda_fp16.h>

#ifdef FLOAT16
typedef half scalar;
#else
typedef float scalar;
#endif

#define THREADS 128

__device__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset >>= 1) {
        v += __shfl_xor_sync(0xffffffffu, v, offset);
    }
    return v;
}

__device__ float block_sum(float v, float* partial) {
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < THREADS / 32; ++warp) total += partial[warp];
    return total;
}

__global__ void rmsnorm_kernel(const scalar* __restrict__ x, scalar* __restrict__ y, int columns) {
    __shared__ float partial[THREADS / 32];
    const scalar* row = x + size_t(blockIdx.x) * columns;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < columns; i += THREADS) squares += float(row[i]) * float(row[i]);
    squares = block_sum(squares, partial);
    const float scale = 1.0f / sqrtf(squares / columns + 1e-5f);
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        y[size_t(blockIdx.x) * columns + i] = scalar(float(row[i]) * scale);
    }
}
