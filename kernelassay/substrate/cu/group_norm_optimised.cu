// x is [batch, groups, group_size, pixels]; one block per (batch, group). Each thread runs Welford's
// update over a strided share; the shares merge by warp shuffles, then over shared memory.
@WELFORD@
extern "C" __global__ void group_norm(const float* __restrict__ x, @AFFINE_POINTERS@float* __restrict__ y, long long batch, long long groups, long long group_size, long long pixels) {
    const long long length = group_size * pixels;
    const long long base = blockIdx.x * length;
    Moments own = {0.0f, 0.0f, 0.0f};
    for (long long i = threadIdx.x; i < length; i += blockDim.x) own = add(own, x[base + i]);
    const Moments total = block_merge(own);
    const float scale = rsqrtf(total.m2 / length + @EPS@);
    const long long first_channel = blockIdx.x % groups * group_size;
    for (long long i = threadIdx.x; i < length; i += blockDim.x) {
        const long long channel = first_channel + i / pixels;
        const float v = (x[base + i] - total.mean) * scale;
        y[base + i] = @AFFINE(v, channel)@;
    }
}

void launch(const float* x, @AFFINE_HOST@float* y, long long batch, long long groups, long long group_size, long long pixels) {
    int threads = 256;
    if (group_size * pixels < 256) threads = 64;
    group_norm<<<dim3(batch * groups), dim3(threads)>>>(x, @AFFINE_ARGUMENTS@y, batch, groups, group_size, pixels);
}
