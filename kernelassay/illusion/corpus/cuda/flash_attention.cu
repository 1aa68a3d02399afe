// Attention of one head with an online softmax; a warp per query, keys in tiles of 32.
// kernelassay: q = arg0
// kernelassay: k = arg1
// kernelassay: v = arg2
// kernelassay: y = out[q.shape[0], v.shape[1]]
// kernelassay: queries = q.shape[0]
// kernelassay: keys = k.shape[0]
// kernelassay: dim = q.shape[1]
// kernelassay: blocks = (queries + QUERIES - 1) / QUERIES
// kernelassay: floats = 2 * (KEYS + QUERIES) * dim
// kernelassay: flash_attention_kernel<<<blocks, dim3(32, QUERIES), floats * sizeof(float)>>>(
// kernelassay:     q, k, v, y, queries, keys, dim)
#include <cuda_fp16.h>

#ifdef FLOAT16
typedef half scalar;
#else
typedef float scalar;
#endif

#define QUERIES 4
#define KEYS 32

__device__ float warp_max(float v) {
    for (int offset = 16; offset > 0; offset >>= 1) {
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
    }
    return v;
}

__device__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
    return v;
}

// Copy rows of a matrix into shared memory, zeros past its last row.
__device__ void stage(float* tile, const scalar* matrix, int first, int count, int rows, int dim) {
    for (int i = threadIdx.y * 32 + threadIdx.x; i < count * dim; i += 32 * QUERIES) {
        tile[i] = first + i / dim < rows ? float(matrix[size_t(first) * dim + i]) : 0.0f;
    }
}

__global__ void flash_attention_kernel(
    const scalar* __restrict__ q, const scalar* __restrict__ k, const scalar* __restrict__ v,
    scalar* __restrict__ y, int queries, int keys, int dim) {
    extern __shared__ float memory[];
    float* key_tile = memory;
    float* value_tile = key_tile + KEYS * dim;
    float* query_tile = value_tile + KEYS * dim;
    const float* query = query_tile + threadIdx.y * dim;
    float* output = query_tile + QUERIES * dim + threadIdx.y * dim;
    const int lane = threadIdx.x;
    const int first_query = blockIdx.x * QUERIES;
    const float scale = 1.0f / sqrtf(float(dim));

    stage(query_tile, q, first_query, QUERIES, queries, dim);
    for (int d = lane; d < dim; d += 32) output[d] = 0.0f;
    float top = -INFINITY;
    float sum = 0.0f;
    for (int start = 0; start < keys; start += KEYS) {
        stage(key_tile, k, start, KEYS, keys, dim);
        stage(value_tile, v, start, KEYS, keys, dim);
        __syncthreads();
        float score = 0.0f;
        for (int d = 0; d < dim; ++d) score += query[d] * key_tile[lane * dim + d];
        score = start + lane < keys ? score * scale : -INFINITY;
        const float raised = fmaxf(top, warp_max(score));
        const float alpha = expf(top - raised);
        const float weight = expf(score - raised);
        sum = sum * alpha + warp_sum(weight);
        top = raised;
        for (int first = 0; first < dim; first += 32) {  // all lanes take part in the shuffles
            const int d = first + lane;
            float value = d < dim ? output[d] * alpha : 0.0f;
            for (int key = 0; key < KEYS; ++key) {
                const float shared_weight = __shfl_sync(0xffffffffu, weight, key);
                if (d < dim) value += shared_weight * value_tile[key * dim + d];
            }
            if (d < dim) output[d] = value;
        }
        __syncthreads();  // before the next tile takes this one's place
    }
    if (first_query + threadIdx.y < queries) {
        for (int d = lane; d < dim; d += 32) {
            y[size_t(first_query + threadIdx.y) * dim + d] = scalar(output[d] / sum);
        }
    }
}
