// x is [outer, length, inner]; one thread per output element, in two passes over length.
extern "C" __global__ void variance_columns(const float* __restrict__ x, float* __restrict__ y, long long outer, long long length, long long inner) {
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= outer * inner) return;
    const float* column = x + index / inner * length * inner + index % inner;
    float sum = 0.0f;
    for (long long k = 0; k < length; ++k) sum += column[k * inner];
    const float mean = sum / length;
    float squares = 0.0f;
    for (long long k = 0; k < length; ++k) {
        const float delta = column[k * inner] - mean;
        squares += delta * delta;
    }
    y[index] = squares / (length - @CORRECTION@);
}

void launch(const float* x, float* y, long long outer, long long length, long long inner) {
    variance_columns<<<dim3((outer * inner + 127) / 128), dim3(128)>>>(x, y, outer, length, inner);
}
