// x is [batch, channels, pixels], normalised per channel by given statistics; one thread per element.
extern "C" __global__ void batch_norm(const float* __restrict__ x, @AFFINE_POINTERS@const float* __restrict__ mean, const float* __restrict__ variance, float* __restrict__ y, long long batch, long long channels, long long pixels) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * channels * pixels) return;
    const long long channel = i / pixels % channels;
    const float v = (x[i] - mean[channel]) * rsqrtf(variance[channel] + @EPS@);
    y[i] = @AFFINE(v, channel)@;
}

void launch(const float* x, @AFFINE_HOST@const float* mean, const float* variance, float* y, long long batch, long long channels, long long pixels) {
    batch_norm<<<dim3((batch * channels * pixels + 255) / 256), dim3(256)>>>(x, @AFFINE_ARGUMENTS@mean, variance, y, batch, channels, pixels);
}
