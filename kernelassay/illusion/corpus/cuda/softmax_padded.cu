// Softmax of rows padded to whole blocks of 128 lanes; a block per row, reductions by shuffles.
// kernelassay: x = arg0
// kernelassay: y = out[x.shape]
// kernelassay: n = x.numel
// kernelassay: columns = x.shape[-1]
// kernelassay: softmax_padded_kernel<<<n / columns, LANES>>>(x, y, columns)
#include <cuda_fp16.h>

#ifdef FLOAT16
typedef half scalar;
#else
typedef float scalar;
#endif

#define LANES 128
#define WARPS (LANES / 32)

__device__ float block_max(float v, float* partial) {
    for (int offset = 16; offset > 0; offset >>= 1) {
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
    }
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    for (int warp = 0; warp < WARPS; ++warp) v = fmaxf(v, partial[warp]);
    return v;
}

__device__ float block_sum(float v, float* partial) {
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < WARPS; ++warp) total += partial[warp];
    return total;
}

__global__ void softmax_padded_kernel(
    const scalar* __restrict__ x, scalar* __restrict__ y, int columns) {
    __shared__ float tops[WARPS];
    __shared__ float sums[WARPS];
    const scalar* row = x + size_t(blockIdx.x) * columns;
    const float padding = -INFINITY;
    const int padded = (columns + LANES - 1) / LANES * LANES;
    float top = -INFINITY;
    for (int i = threadIdx.x; i < padded; i += LANES) {
        top = fmaxf(top, i < columns ? float(row[i]) : padding);
    }
    top = block_max(top, tops);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < padded; i += LANES) {
        sum += expf((i < columns ? float(row[i]) : padding) - top);
    }
    sum = block_sum(sum, sums);
    for (int i = threadIdx.x; i < columns; i += LANES) {
        y[size_t(blockIdx.x) * columns + i] = scalar(expf(float(row[i]) - top) / sum);
    }
}
