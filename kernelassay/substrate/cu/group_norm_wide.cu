// x is [batch, groups, group_size, pixels]; one block per (batch, group). One pass for the sums of the
// elements and of their squares, both in double.
@BLOCK_SUM_WIDE@
extern "C" __global__ void group_norm(const float* __restrict__ x, @AFFINE_POINTERS@float* __restrict__ y, long long batch, long long groups, long long group_size, long long pixels) {
    const long long length = group_size * pixels;
    const long long base = blockIdx.x * length;
    double sum = 0.0;
    double squares = 0.0;
    for (long long i = threadIdx.x; i < length; i += blockDim.x) {
        const double v = x[base + i];
        sum += v;
        squares += v * v;
    }
    sum = block_sum(sum);
    __syncthreads();
    squares = block_sum(squares);
    const double centre = sum / length;
    const float mean = centre;
    const float variance = squares / length - centre * centre;
    const float scale = rsqrtf(variance + @EPS@);
    const long long first_channel = blockIdx.x % groups * group_size;
    for (long long i = threadIdx.x; i < length; i += blockDim.x) {
        const long long channel = first_channel + i / pixels;
        const float v = (x[base + i] - mean) * scale;
        y[base + i] = @AFFINE(v, channel)@;
    }
}

void launch(const float* x, @AFFINE_HOST@float* y, long long batch, long long groups, long long group_size, long long pixels) {
    int threads = 256;
    if (group_size * pixels < 256) threads = 64;
    group_norm<<<dim3(batch * groups), dim3(threads)>>>(x, @AFFINE_ARGUMENTS@y, batch, groups, group_size, pixels);
}
