// Kullback-Leibler divergence of log-probabilities x from @TARGET_KIND@ t, divided by divisor: a
// grid-stride loop leaves one partial sum per block, a last block adds them up.
#define WARP 32
#define BLOCK 256

__device__ float block_sum(float value) {
    __shared__ float warp_sums[BLOCK / WARP];
    for (int offset = WARP / 2; offset > 0; offset >>= 1) {
        value += __shfl_down_sync(0xffffffffu, value, offset);
    }
    if (threadIdx.x % WARP == 0) warp_sums[threadIdx.x / WARP] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int warp = 0; warp < BLOCK / WARP; ++warp) {
        sum += warp_sums[warp];
    }
    return sum;
}

extern "C" __global__ void kl_div_partial(const float* __restrict__ x, const float* __restrict__ t,
                                          float* __restrict__ partial, long long total) {
    float sum = 0.0f;
    long long step = (long long)gridDim.x * BLOCK;
    for (long long i = (long long)blockIdx.x * BLOCK + threadIdx.x; i < total; i += step) {
        sum += @TERM@;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

extern "C" __global__ void kl_div_final(const float* __restrict__ partial, float* __restrict__ y, int blocks,
                                        float divisor) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < blocks; i += BLOCK) {
        sum += partial[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) y[0] = sum / divisor;
}

void launch(const float* x, const float* t, float* y, long long total, float divisor, int max_blocks) {
    long long wanted = (total + BLOCK - 1) / BLOCK;
    int blocks = wanted < max_blocks ? wanted : max_blocks;
    float* partial;
    cudaMalloc(&partial, blocks * sizeof(float));
    kl_div_partial<<<dim3(blocks), dim3(BLOCK)>>>(x, t, partial, total);
    kl_div_final<<<dim3(1), dim3(BLOCK)>>>(partial, y, blocks, divisor);
}
