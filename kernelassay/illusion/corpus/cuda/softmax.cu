// Softmax of rows; a block per row covers a power-of-two tile, whose lanes past the row are masked.
// kernelassay: x = arg0
// kernelassay: y = out[x.shape]
// kernelassay: n = x.numel
// kernelassay: columns = x.shape[-1]
// kernelassay: softmax_kernel<<<n / columns, THREADS>>>(x, y, columns)
#include <cuda_fp16.h>

#ifdef FLOAT16
typedef half scalar;
#else
typedef float scalar;
#endif

#define THREADS 128

__device__ float block_max(float v, float* partial) {
    partial[threadIdx.x] = v;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step >>= 1) {
        if (threadIdx.x < step) {
            partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + step]);
        }
        __syncthreads();
    }
    v = partial[0];
    __syncthreads();
    return v;
}

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

__device__ float masked(const scalar* row, int lane, int columns) {
    return lane < columns ? float(row[lane]) : -INFINITY;
}

__global__ void softmax_kernel(const scalar* __restrict__ x, scalar* __restrict__ y, int columns) {
    __shared__ float partial[THREADS];
    const scalar* row = x + size_t(blockIdx.x) * columns;
    int tile = 1;
    while (tile < columns) tile <<= 1;
    float top = -INFINITY;
    for (int lane = threadIdx.x; lane < tile; lane += THREADS) {
        top = fmaxf(top, masked(row, lane, columns));
    }
    top = block_max(top, partial);
    float sum = 0.0f;
    for (int lane = threadIdx.x; lane < tile; lane += THREADS) {
        sum += expf(masked(row, lane, columns) - top);
    }
    sum = block_sum(sum, partial);
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        y[size_t(blockIdx.x) * columns + i] = scalar(expf(float(row[i]) - top) / sum);
    }
}
