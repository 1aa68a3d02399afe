// One warp per row, four rows per block. Each lane runs Welford's update over a strided share, so that one
// pass over x gives both statistics; the shares merge by warp shuffles.
#define ROWS_PER_BLOCK 4

extern "C" __global__ void layer_norm(const float* __restrict__ x, @AFFINE_POINTERS@float* __restrict__ y, long long rows, long long cols) {
    const long long row = (long long)blockIdx.x * ROWS_PER_BLOCK + threadIdx.y;
    if (row >= rows) return;
    float count = 0.0f;
    float mean = 0.0f;
    float m2 = 0.0f;
    for (long long i = threadIdx.x; i < cols; i += 32) {
        const float v = x[row * cols + i];
        count += 1.0f;
        const float delta = v - mean;
        mean += delta / count;
        m2 += delta * (v - mean);
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        const float other_count = __shfl_xor_sync(0xffffffffu, count, offset);
        const float other_mean = __shfl_xor_sync(0xffffffffu, mean, offset);
        const float other_m2 = __shfl_xor_sync(0xffffffffu, m2, offset);
        const float total = count + other_count;
        if (total > 0.0f) {
            const float delta = other_mean - mean;
            m2 += other_m2 + delta * delta * (count * other_count / total);
            mean = (mean * count + other_mean * other_count) / total;
            count = total;
        }
    }
    const float scale = rsqrtf(m2 / cols + @EPS@);
    for (long long i = threadIdx.x; i < cols; i += 32) {
        const float v = (x[row * cols + i] - mean) * scale;
        y[row * cols + i] = @AFFINE(v, i)@;
    }
}

void launch(const float* x, @AFFINE_HOST@float* y, long long rows, long long cols) {
    layer_norm<<<dim3((rows + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK), dim3(32, ROWS_PER_BLOCK)>>>(x, @AFFINE_ARGUMENTS@y, rows, cols);
}
