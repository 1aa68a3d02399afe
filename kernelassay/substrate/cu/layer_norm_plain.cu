// One thread per row, in two passes for the statistics and one for the result.
extern "C" __global__ void layer_norm(const float* __restrict__ x, @AFFINE_POINTERS@float* __restrict__ y, long long rows, long long cols) {
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
    const float scale = rsqrtf(squares / cols + @EPS@);
    for (long long i = 0; i < cols; ++i) {
        const float v = (x[row * cols + i] - mean) * scale;
        y[row * cols + i] = @AFFINE(v, i)@;
    }
}

void launch(const float* x, @AFFINE_HOST@float* y, long long rows, long long cols) {
    layer_norm<<<dim3((rows + 127) / 128), dim3(128)>>>(x, @AFFINE_ARGUMENTS@y, rows, cols);
}
