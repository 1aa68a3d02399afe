// Attention of one head; a block per query, all of its scores in shared memory.
// kernelassay: q = arg0
// kernelassay: k = arg1
// kernelassay: v = arg2
// kernelassay: y = out[q.shape[0], v.shape[1]]
// kernelassay: queries = q.shape[0]
// kernelassay: keys = k.shape[0]
// kernelassay: dim = q.shape[1]
// kernelassay: attention_kernel<<<queries, THREADS, keys * sizeof(float)>>>(q, k, v, y, keys, dim)
#include <cuda_fp16.h>

#ifdef FLOAT16
typedef half scalar;
#else
typedef float scalar;
#endif

#define THREADS 64

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

__global__ void attention_kernel(
    const scalar* __restrict__ q, const scalar* __restrict__ k, const scalar* __restrict__ v,
    scalar* __restrict__ y, int keys, int dim) {
    extern __shared__ float scores[];
    __shared__ float partial[THREADS];
    const scalar* query = q + size_t(blockIdx.x) * dim;
    const float scale = 1.0f / sqrtf(float(dim));
    float top = -INFINITY;
    for (int key = threadIdx.x; key < keys; key += THREADS) {
        float dot = 0.0f;
        for (int d = 0; d < dim; ++d) dot += float(query[d]) * float(k[size_t(key) * dim + d]);
        scores[key] = dot * scale;
        top = fmaxf(top, scores[key]);
    }
    top = block_max(top, partial);
    float sum = 0.0f;
    for (int key = threadIdx.x; key < keys; key += THREADS) {
        scores[key] = expf(scores[key] - top);
        sum += scores[key];
    }
    sum = block_sum(sum, partial);  // and a barrier: every score is in its place
    for (int d = threadIdx.x; d < dim; d += THREADS) {
        float value = 0.0f;
        for (int key = 0; key < keys; ++key) value += scores[key] * float(v[size_t(key) * dim + d]);
        y[size_t(blockIdx.x) * dim + d] = scalar(value / sum);
    }
}
