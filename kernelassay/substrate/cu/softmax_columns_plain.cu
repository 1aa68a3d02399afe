// x is [outer, length, inner], normalised over length; one thread per (outer, inner) pair.
extern "C" __global__ void softmax_columns(const float* __restrict__ x, float* __restrict__ y, long long outer, long long length, long long inner) {
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= outer * inner) return;
    const long long base = index / inner * length * inner + index % inner;
    float largest = -INFINITY;
    for (long long k = 0; k < length; ++k) largest = fmaxf(largest, x[base + k * inner]);
    float total = 0.0f;
    for (long long k = 0; k < length; ++k) total += expf(x[base + k * inner] - largest);
    for (long long k = 0; k < length; ++k) {
        const float v = x[base + k * inner];
        y[base + k * inner] = @RESULT(v)@;
    }
}

void launch(const float* x, float* y, long long outer, long long length, long long inner) {
    softmax_columns<<<dim3((outer * inner + 127) / 128), dim3(128)>>>(x, y, outer, length, inner);
}
