// One block per row, in two passes: the mean, then the squared deviations from it.
@BLOCK_SUM@
extern "C" __global__ void variance_rows(const float* __restrict__ x, float* __restrict__ y, long long rows, long long cols) {
    const float* row = x + blockIdx.x * cols;
    float sum = 0.0f;
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) sum += row[i];
    const float mean = block_sum(sum) / cols;
    float squares = 0.0f;
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) {
        const float delta = row[i] - mean;
        squares += delta * delta;
    }
    squares = block_sum(squares);
    if (threadIdx.x == 0) y[blockIdx.x] = squares / (cols - @CORRECTION@);
}

void launch(const float* x, float* y, long long rows, long long cols) {
    int threads = 256;
    if (cols < 256) threads = 64;
    variance_rows<<<dim3(rows), dim3(threads)>>>(x, y, rows, cols);
}
