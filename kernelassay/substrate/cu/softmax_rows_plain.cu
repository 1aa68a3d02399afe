// One thread per row, in three passes: the largest element, the sum of exponentials, the result.
extern "C" __global__ void softmax_rows(const float* __restrict__ x, float* __restrict__ y, long long rows, long long cols) {
    const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float largest = -INFINITY;
    for (long long i = 0; i < cols; ++i) largest = fmaxf(largest, x[row * cols + i]);
    float total = 0.0f;
    for (long long i = 0; i < cols; ++i) total += expf(x[row * cols + i] - largest);
    for (long long i = 0; i < cols; ++i) {
        const float v = x[row * cols + i];
        y[row * cols + i] = @RESULT(v)@;
    }
}

void launch(const float* x, float* y, long long rows, long long cols) {
    softmax_rows<<<dim3((rows + 127) / 128), dim3(128)>>>(x, y, rows, cols);
}
