// x is [outer, length, inner], normalised over length. One thread per column, in one pass over length for
// both statistics: whenever a larger element appears, the sum so far is rescaled to it.
extern "C" __global__ void softmax_columns(const float* __restrict__ x, float* __restrict__ y, long long outer, long long length, long long inner) {
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= outer * inner) return;
    const long long base = index / inner * length * inner + index % inner;
    float largest = -FLT_MAX;
    float total = 0.0f;
    for (long long k = 0; k < length; ++k) {
        const float v = x[base + k * inner];
        const float previous = largest;
        largest = fmaxf(largest, v);
        total = total * expf(previous - largest) + expf(v - largest);
    }
    for (long long k = 0; k < length; ++k) {
        const float v = x[base + k * inner];
        y[base + k * inner] = @RESULT(v)@;
    }
}

void launch(const float* x, float* y, long long outer, long long length, long long inner) {
    softmax_columns<<<dim3((outer * inner + 127) / 128), dim3(128)>>>(x, y, outer, length, inner);
}
