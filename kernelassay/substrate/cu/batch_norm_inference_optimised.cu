// x is [batch, channels, pixels], normalised per channel by given statistics; one block per
// (batch, channel) plane, which needs its channel's factor and shift only once.
extern "C" __global__ void batch_norm(const float* __restrict__ x, @AFFINE_POINTERS@const float* __restrict__ mean, const float* __restrict__ variance, float* __restrict__ y, long long batch, long long channels, long long pixels) {
    const long long channel = blockIdx.x % channels;
    const long long base = blockIdx.x * pixels;
    const float center = mean[channel];
    const float scale = rsqrtf(variance[channel] + @EPS@);
    for (long long p = threadIdx.x; p < pixels; p += blockDim.x) {
        const float v = (x[base + p] - center) * scale;
        y[base + p] = @AFFINE(v, channel)@;
    }
}

void launch(const float* x, @AFFINE_HOST@const float* mean, const float* variance, float* y, long long batch, long long channels, long long pixels) {
    int threads = 256;
    if (pixels < 256) threads = 64;
    batch_norm<<<dim3(batch * channels), dim3(threads)>>>(x, @AFFINE_ARGUMENTS@mean, variance, y, batch, channels, pixels);
}
