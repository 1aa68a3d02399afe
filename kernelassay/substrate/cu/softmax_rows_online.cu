// One warp per row, four rows per block, in one pass over x for both statistics: whenever a larger
// element appears, the sum so far is rescaled to it.
#define ROWS_PER_BLOCK 4

extern "C" __global__ void softmax_rows(const float* __restrict__ x, float* __restrict__ y, long long rows, long long cols) {
    const long long row = (long long)blockIdx.x * ROWS_PER_BLOCK + threadIdx.y;
    if (row >= rows) return;
    float largest = -FLT_MAX;
    float total = 0.0f;
    for (long long i = threadIdx.x; i < cols; i += 32) {
        const float v = x[row * cols + i];
        const float previous = largest;
        largest = fmaxf(largest, v);
        total = total * expf(previous - largest) + expf(v - largest);
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        const float other_largest = __shfl_xor_sync(0xffffffffu, largest, offset);
        const float other_total = __shfl_xor_sync(0xffffffffu, total, offset);
        const float merged = fmaxf(largest, other_largest);
        total = total * expf(largest - merged) + other_total * expf(other_largest - merged);
        largest = merged;
    }
    for (long long i = threadIdx.x; i < cols; i += 32) {
        const float v = x[row * cols + i];
        y[row * cols + i] = @RESULT(v)@;
    }
}

void launch(const float* x, float* y, long long rows, long long cols) {
    softmax_rows<<<dim3((rows + 3) / 4), dim3(32, 4)>>>(x, y, rows, cols);
}
