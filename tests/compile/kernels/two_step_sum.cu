constexpr int THREADS = 128;

__device__ __forceinline__ float warp_sum(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
    return v;
}

__device__ float block_sum(float v) {
    __shared__ float warps[32];
    int lane = threadIdx.x & 31;
    int warp = threadIdx.x >> 5;
    v = warp_sum(v);
    if (lane == 0) warps[warp] = v;
    __syncthreads();
    v = threadIdx.x < (blockDim.x + 31) / 32 ? warps[lane] : 0.0f;
    return warp == 0 ? warp_sum(v) : v;
}

extern "C" __global__ void __launch_bounds__(THREADS)
partial_sums(const float* __restrict__ x, float* __restrict__ partial, long long n) {
    float v = 0.0f;
    long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        v += x[i];
    }
    v = block_sum(v);
    if (threadIdx.x == 0) partial[blockIdx.x] = v;
}

extern "C" __global__ void __launch_bounds__(THREADS)
combine(const float* __restrict__ partial, float* __restrict__ y, int count, float scale) {
    float v = 0.0f;
    for (int i = threadIdx.x; i < count; i += blockDim.x) v += partial[i];
    v = block_sum(v);
    if (threadIdx.x == 0) y[0] = v * scale;
}

void launch(const float* x, float* y, long long n, bool mean) {
    int blocks = (int)((n + THREADS - 1) / THREADS);
    if (blocks > 64) blocks = 64;
    float* partial;
    cudaMalloc(&partial, blocks * sizeof(float));
    cudaMemset(partial, 0, blocks * sizeof(float));
    partial_sums<<<blocks, THREADS>>>(x, partial, n);
    combine<<<1, THREADS>>>(partial, y, blocks, mean ? 1.0f / n : 1.0f);
    cudaFree(partial);
}
