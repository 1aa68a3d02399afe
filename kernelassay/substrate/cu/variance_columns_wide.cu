// x is [outer, length, inner]. One thread per output element, in one pass over length: the sums of the
// elements and of their squares, both in double.
extern "C" __global__ void variance_columns(const float* __restrict__ x, float* __restrict__ y, long long outer, long long length, long long inner) {
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= outer * inner) return;
    const long long base = index / inner * length * inner + index % inner;
    double sum = 0.0;
    double squares = 0.0;
    for (long long k = 0; k < length; ++k) {
        const double v = x[base + k * inner];
        sum += v;
        squares += v * v;
    }
    const double mean = sum / length;
    y[index] = (squares - length * mean * mean) / (length - @CORRECTION@);
}

void launch(const float* x, float* y, long long outer, long long length, long long inner) {
    variance_columns<<<dim3((outer * inner + 127) / 128), dim3(128)>>>(x, y, outer, length, inner);
}
