// One block per row: the mean, then the squared deviations from it, each by warp shuffles.
@BLOCK_SUM@
extern "C" __global__ void layer_norm(const float* __restrict__ x, @AFFINE_POINTERS@float* __restrict__ y, long long rows, long long cols) {
    const float* row = x + blockIdx.x * cols;
    float sum = 0.0f;
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) sum += row[i];
    const float mean = block_sum(sum) / cols;
    float squares = 0.0f;
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) {
        const float delta = row[i] - mean;
        squares += delta * delta;
    }
    const float scale = rsqrtf(block_sum(squares) / cols + @EPS@);
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) {
        const float v = (row[i] - mean) * scale;
        y[blockIdx.x * cols + i] = @AFFINE(v, i)@;
    }
}

void launch(const float* x, @AFFINE_HOST@float* y, long long rows, long long cols) {
    int threads = 256;
    if (cols < 256) threads = 64;
    layer_norm<<<dim3(rows), dim3(threads)>>>(x, @AFFINE_ARGUMENTS@y, rows, cols);
}
