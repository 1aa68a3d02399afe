"""Correct kernels the CPU executor's tests run and break."""

VADD = r"""
extern "C" __global__ void vadd(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""

SOFTMAX = r"""
#define BLOCK 128
extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ y, int cols) {
    extern __shared__ float partial[];
    int t = threadIdx.x;
    const float* in = x + (size_t)blockIdx.x * cols;
    float* out = y + (size_t)blockIdx.x * cols;
    float top = -INFINITY;
    for (int i = t; i < cols; i += BLOCK) top = fmaxf(top, in[i]);
    partial[t] = top;
    __syncthreads();
    for (int s = BLOCK / 2; s > 0; s >>= 1) {
        if (t < s) partial[t] = fmaxf(partial[t], partial[t + s]);
        __syncthreads();
    }
    top = partial[0];
    __syncthreads();
    float sum = 0.0f;
    for (int i = t; i < cols; i += BLOCK) sum += expf(in[i] - top);
    partial[t] = sum;
    __syncthreads();
    for (int s = BLOCK / 2; s > 0; s >>= 1) {
        if (t < s) partial[t] += partial[t + s];
        __syncthreads();
    }
    sum = partial[0];
    for (int i = t; i < cols; i += BLOCK) out[i] = expf(in[i] - top) / sum;
}
"""

MATMUL = r"""
#define TILE 8
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE + 1];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int base = 0; base < k; base += TILE) {
        int ka = base + threadIdx.x, kb = base + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0.0f;
        bs[threadIdx.y][threadIdx.x] = col < n && kb < k ? b[kb * n + col] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < TILE; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
"""

LAYERNORM = r"""
__device__ float block_sum(float v) {
    __shared__ float warps[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
    if (lane == 0) warps[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < (blockDim.x + 31) / 32 ? warps[lane] : 0.0f;
        for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
        if (lane == 0) warps[0] = v;
    }
    __syncthreads();
    v = warps[0];
    __syncthreads();
    return v;
}
extern "C" __global__ void layernorm(const float* x, float* y, int cols, float eps) {
    const float* in = x + blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += in[i];
    float mean = block_sum(sum) / cols;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float d = in[i] - mean;
        squares += d * d;
    }
    float scale = rsqrtf(block_sum(squares) / cols + eps);
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        y[blockIdx.x * cols + i] = (in[i] - mean) * scale;
}
"""

HALF_DOT = r"""
#include <cuda_fp16.h>
extern "C" __global__ void halfdot(const __half2* a, const __half2* b, __half* out, int pairs) {
    __half2 sum = __float2half2_rn(0.0f);
    for (int i = 0; i < pairs; ++i)
        sum = __hfma2(a[threadIdx.x * pairs + i], b[threadIdx.x * pairs + i], sum);
    out[threadIdx.x] = __hadd(__low2half(sum), __high2half(sum));
}
"""

WARP_SUM = r"""
extern "C" __global__ void warp_sum(const float* x, float* out, int n) {
    __shared__ volatile float s[64];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 32 + t];
    s[t + 32] = 0.0f;
    __syncwarp();
    for (int o = 16; o > 0; o >>= 1) {
        float v = s[t] + s[t + o];
        __syncwarp();
        s[t] = v;
        __syncwarp();
    }
    if (t == 0) atomicAdd(out, s[0] - *(const float*)&s[32]);
}
"""
