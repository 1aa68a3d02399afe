// x is [batch, channels, pixels], normalised per channel over batch and pixels. A grid of
// (channels, splits) blocks gathers Welford moments of a share each, one thread per channel merges the
// splits, and a grid-stride kernel applies the result.
@WELFORD@
extern "C" __global__ void partial_moments(const float* __restrict__ x, float* __restrict__ counts, float* __restrict__ means, float* __restrict__ squares, long long batch, long long channels, long long pixels) {
    const long long channel = blockIdx.x;
    const long long length = batch * pixels;
    const long long stride = (long long)gridDim.y * blockDim.x;
    Moments own = {0.0f, 0.0f, 0.0f};
    for (long long i = (long long)blockIdx.y * blockDim.x + threadIdx.x; i < length; i += stride) {
        own = add(own, x[(i / pixels * channels + channel) * pixels + i % pixels]);
    }
    const Moments total = block_merge(own);
    if (threadIdx.x == 0) {
        counts[blockIdx.y * channels + channel] = total.count;
        means[blockIdx.y * channels + channel] = total.mean;
        squares[blockIdx.y * channels + channel] = total.m2;
    }
}

extern "C" __global__ void merge_moments(const float* __restrict__ counts, const float* __restrict__ means, const float* __restrict__ squares, float* __restrict__ mean, float* __restrict__ scale, long long channels, int splits) {
    const long long channel = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    Moments total = {0.0f, 0.0f, 0.0f};
    for (int s = 0; s < splits; ++s) {
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
    const int threads = 128;
    const long long n = batch * channels * pixels;
    long long splits = (batch * pixels + 1023) / 1024;
    if (splits > 64) splits = 64;
    long long blocks = (n + 255) / 256;
    if (blocks > max_blocks) blocks = max_blocks;
    float* counts;
    float* means;
    float* squares;
    float* mean;
    float* scale;
    cudaMalloc(&counts, splits * channels * sizeof(float));
    cudaMalloc(&means, splits * channels * sizeof(float));
    cudaMalloc(&squares, splits * channels * sizeof(float));
    cudaMalloc(&mean, channels * sizeof(float));
    cudaMalloc(&scale, channels * sizeof(float));
    partial_moments<<<dim3(channels, splits), dim3(threads)>>>(x, counts, means, squares, batch, channels, pixels);
    merge_moments<<<dim3((channels + threads - 1) / threads), dim3(threads)>>>(counts, means, squares, mean, scale, channels, splits);
    normalise<<<dim3(blocks), dim3(256)>>>(x, @AFFINE_ARGUMENTS@mean, scale, y, n, channels, pixels);
}
