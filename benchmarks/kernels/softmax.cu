// One block per row: maximum and sum by a shared tree, the last warp by shuffles.
#define THREADS 128

__device__ float reduce_max(float v, float* partial) {
    partial[threadIdx.x] = v;
    __syncthreads();
    for (int s = THREADS / 2; s >= 32; s >>= 1) {
        if (threadIdx.x < s) {
            partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + s]);
        }
        __syncthreads();
    }
    v = partial[threadIdx.x % 32];
    for (int o = 16; o > 0; o >>= 1) {
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    }
    __syncthreads();
    return v;
}

__device__ float reduce_sum(float v, float* partial) {
    partial[threadIdx.x] = v;
    __syncthreads();
    for (int s = THREADS / 2; s >= 32; s >>= 1) {
        if (threadIdx.x < s) {
            partial[threadIdx.x] += partial[threadIdx.x + s];
        }
        __syncthreads();
    }
    v = partial[threadIdx.x % 32];
    for (int o = 16; o > 0; o >>= 1) {
        v += __shfl_xor_sync(0xffffffffu, v, o);
    }
    __syncthreads();
    return v;
}

extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    __shared__ float partial[THREADS];
    const int row = blockIdx.x;
    const float* source = x + (long long)row * cols;
    float best = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += THREADS) {
        best = fmaxf(best, source[c]);
    }
    best = reduce_max(best, partial);
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += THREADS) {
        sum += expf(source[c] - best);
    }
    sum = reduce_sum(sum, partial);
    for (int c = threadIdx.x; c < cols; c += THREADS) {
        y[(long long)row * cols + c] = expf(source[c] - best) / sum;
    }
}

void launch(const float* x, float* y, int rows, int cols) {
    softmax<<<dim3(rows), dim3(THREADS)>>>(x, y, rows, cols);
}
