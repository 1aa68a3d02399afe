// x is [batch, channels, pixels], normalised per channel over batch and pixels: one thread per channel
// finds the statistics, then one thread per element applies them.
extern "C" __global__ void channel_statistics(const float* __restrict__ x, float* __restrict__ means, float* __restrict__ scales, long long batch, long long channels, long long pixels) {
    const long long channel = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    float sum = 0.0f;
    for (long long b = 0; b < batch; ++b) {
        for (long long p = 0; p < pixels; ++p) sum += x[(b * channels + channel) * pixels + p];
    }
    const float mean = sum / (batch * pixels);
    float squares = 0.0f;
    for (long long b = 0; b < batch; ++b) {
        for (long long p = 0; p < pixels; ++p) {
            const float delta = x[(b * channels + channel) * pixels + p] - mean;
            squares += delta * delta;
        }
    }
    means[channel] = mean;
    scales[channel] = rsqrtf(squares / (batch * pixels) + @EPS@);
}

extern "C" __global__ void normalise(const float* __restrict__ x, @AFFINE_POINTERS@const float* __restrict__ means, const float* __restrict__ scales, float* __restrict__ y, long long batch, long long channels, long long pixels) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * channels * pixels) return;
    const long long channel = i / pixels % channels;
    const float v = (x[i] - means[channel]) * scales[channel];
    y[i] = @AFFINE(v, channel)@;
}

void launch(const float* x, @AFFINE_HOST@float* y, long long batch, long long channels, long long pixels, int max_blocks) {
    float* means;
    float* scales;
    cudaMalloc(&means, channels * sizeof(float));
    cudaMalloc(&scales, channels * sizeof(float));
    channel_statistics<<<dim3((channels + 63) / 64), dim3(64)>>>(x, means, scales, batch, channels, pixels);
    normalise<<<dim3((batch * channels * pixels + 255) / 256), dim3(256)>>>(x, @AFFINE_ARGUMENTS@means, scales, y, batch, channels, pixels);
}
