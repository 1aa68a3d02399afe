// x is [batch, channels, pixels], normalised per channel over batch and pixels. A grid of
// (channels, splits) blocks gathers Welford moments of a share each; the block of a channel that draws
// the channel's last ticket merges them, in their order. A grid-stride kernel applies the result.
#define STRETCH 512
@WELFORD@
extern "C" __global__ void moments(const float* __restrict__ x, volatile float* counts, volatile float* means, volatile float* squares, unsigned int* tickets, float* __restrict__ mean, float* __restrict__ scale, long long batch, long long channels, long long pixels) {
    const long long channel = blockIdx.x;
    const long long length = batch * pixels;
    const long long first = (long long)blockIdx.y * STRETCH;
    const long long end = min(first + STRETCH, length);
    Moments own = {0.0f, 0.0f, 0.0f};
    for (long long i = first + threadIdx.x; i < end; i += blockDim.x) {
        own = add(own, x[(i / pixels * channels + channel) * pixels + i % pixels]);
    }
    const Moments share = block_merge(own);
    if (threadIdx.x != 0) return;
    counts[blockIdx.y * channels + channel] = share.count;
    means[blockIdx.y * channels + channel] = share.mean;
    squares[blockIdx.y * channels + channel] = share.m2;
    __threadfence();
    if (atomicAdd(&tickets[channel], 1u) != gridDim.y - 1) return;
    Moments total = {0.0f, 0.0f, 0.0f};
    for (int s = 0; s < gridDim.y; ++s) {
        const Moments part = {counts[s * channels + channel], means[s * channels + channel], squares[s * channels + channel]};
        total = merge(total, part);
    }
    mean[channel] = total.mean;
    scale[channel] = rsqrtf(total.m2 / total.count + @EPS@);
}

extern "C" __global__ void normalise(const float* __restrict__ x, @AFFINE_POINTERS@const float* __restrict__ mean, const float* __restrict__ scale, float* __restrict__ y, long long n, long long channels, long long pixels) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const long long channel = i / pixels % channels;
        const float v = (x[i] - mean[channel]) * scale[channel];
        y[i] = @AFFINE(v, channel)@;
    }
}

void launch(const float* x, @AFFINE_HOST@float* y, long long batch, long long channels, long long pixels, int max_blocks) {
    const long long n = batch * channels * pixels;
    const long long splits = (batch * pixels + STRETCH - 1) / STRETCH;
    long long blocks = (n + 255) / 256;
    if (blocks > max_blocks) blocks = max_blocks;
    float* counts;
    float* means;
    float* squares;
    unsigned int* tickets;
    float* mean;
    float* scale;
    cudaMalloc(&counts, splits * channels * sizeof(float));
    cudaMalloc(&means, splits * channels * sizeof(float));
    cudaMalloc(&squares, splits * channels * sizeof(float));
    cudaMalloc(&tickets, channels * sizeof(unsigned int));
    cudaMalloc(&mean, channels * sizeof(float));
    cudaMalloc(&scale, channels * sizeof(float));
    cudaMemset(tickets, 0, channels * sizeof(unsigned int));
    moments<<<dim3(channels, splits), dim3(128)>>>(x, counts, means, squares, tickets, mean, scale, batch, channels, pixels);
    normalise<<<dim3(blocks), dim3(256)>>>(x, @AFFINE_ARGUMENTS@mean, scale, y, n, channels, pixels);
}
