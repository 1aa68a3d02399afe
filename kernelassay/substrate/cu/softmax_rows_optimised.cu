// One block per row. Each thread folds a strided share; warps fold by shuffles, the block by a tree in
// shared memory over one word per warp.
#define WARPS 8

__device__ float block_max(float value) {
    __shared__ float partial[WARPS];
    for (int offset = 16; offset > 0; offset >>= 1) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    for (int step = WARPS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + step]);
        __syncthreads();
    }
    return partial[0];
}

__device__ float block_sum(float value) {
    __shared__ float partial[WARPS];
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    for (int step = WARPS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
        __syncthreads();
    }
    return partial[0];
}

extern "C" __global__ void softmax_rows(const float* __restrict__ x, float* __restrict__ y, long long rows, long long cols) {
    const float* row = x + blockIdx.x * cols;
    float largest = -INFINITY;
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) largest = fmaxf(largest, row[i]);
    largest = block_max(largest);
    float total = 0.0f;
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) total += expf(row[i] - largest);
    total = block_sum(total);
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) {
        const float v = row[i];
        y[blockIdx.x * cols + i] = @RESULT(v)@;
    }
}

void launch(const float* x, float* y, long long rows, long long cols) {
    softmax_rows<<<dim3(rows), dim3(256)>>>(x, y, rows, cols);
}
