// One thread per row, in two passes: the mean, then the squared deviations from it.
extern "C" __global__ void variance_rows(const float* __restrict__ x, float* __restrict__ y, long long rows, long long cols) {
    const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (long long i = 0; i < cols; ++i) sum += x[row * cols + i];
    const float mean = sum / cols;
    float squares = 0.0f;
    for (long long i = 0; i < cols; ++i) {
        const float delta = x[row * cols + i] - mean;
        squares += delta * delta;
    }
    y[row] = squares / (cols - @CORRECTION@);
}

void launch(const float* x, float* y, long long rows, long long cols) {
    variance_rows<<<dim3((rows + 127) / 128), dim3(128)>>>(x, y, rows, cols);
}
