// Kullback-Leibler divergence of log-probabilities x from @TARGET_KIND@ t, divided by divisor, in one
// kernel: a grid-stride loop leaves one partial sum per block; the block that draws the last ticket adds
// them up, in their order.
#define BLOCK 256
@BLOCK_SUM@
extern "C" __global__ void kl_div_split(const float* __restrict__ x, const float* __restrict__ t, volatile float* partial,
                                        unsigned int* ticket, float* __restrict__ y, long long total, float divisor) {
    __shared__ bool last;
    float sum = 0.0f;
    long long step = (long long)gridDim.x * BLOCK;
    for (long long i = (long long)blockIdx.x * BLOCK + threadIdx.x; i < total; i += step) {
        sum += @TERM@;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    sum = 0.0f;
    for (int i = threadIdx.x; i < gridDim.x; i += BLOCK) {
        sum += partial[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) y[0] = sum / divisor;
}

void launch(const float* x, const float* t, float* y, long long total, float divisor, int max_blocks) {
    long long wanted = (total + BLOCK - 1) / BLOCK;
    int blocks = wanted < max_blocks ? wanted : max_blocks;
    float* partial;
    unsigned int* ticket;
    cudaMalloc(&partial, blocks * sizeof(float));
    cudaMalloc(&ticket, sizeof(unsigned int));
    cudaMemset(ticket, 0, sizeof(unsigned int));
    kl_div_split<<<dim3(blocks), dim3(BLOCK)>>>(x, t, partial, ticket, y, total, divisor);
}
