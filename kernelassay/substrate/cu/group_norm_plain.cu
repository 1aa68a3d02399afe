// x is [batch, groups, group_size, pixels]; one thread per (batch, group) normalises its elements.
extern "C" __global__ void group_norm(const float* __restrict__ x, @AFFINE_POINTERS@float* __restrict__ y, long long batch, long long groups, long long group_size, long long pixels) {
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= batch * groups) return;
    const long long length = group_size * pixels;
    const long long base = index * length;
    float sum = 0.0f;
    for (long long i = 0; i < length; ++i) sum += x[base + i];
    const float mean = sum / length;
    float squares = 0.0f;
    for (long long i = 0; i < length; ++i) {
        const float delta = x[base + i] - mean;
        squares += delta * delta;
    }
    const float scale = rsqrtf(squares / length + @EPS@);
    for (long long i = 0; i < length; ++i) {
        const long long channel = index % groups * group_size + i / pixels;
        const float v = (x[base + i] - mean) * scale;
        y[base + i] = @AFFINE(v, channel)@;
    }
}

void launch(const float* x, @AFFINE_HOST@float* y, long long batch, long long groups, long long group_size, long long pixels) {
    group_norm<<<dim3((batch * groups + 63) / 64), dim3(64)>>>(x, @AFFINE_ARGUMENTS@y, batch, groups, group_size, pixels);
}
