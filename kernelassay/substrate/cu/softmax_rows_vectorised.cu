// One warp per row, four rows per block; four elements per load and store where rows are 16-byte aligned, and
// the rest one by one.
#define ROWS_PER_BLOCK 4

extern "C" __global__ void softmax_rows(const float* __restrict__ x, float* __restrict__ y, long long rows, long long cols) {
    const long long row = (long long)blockIdx.x * ROWS_PER_BLOCK + threadIdx.y;
    if (row >= rows) return;
    const float* in = x + row * cols;
    float* out = y + row * cols;
    const long long vectors = cols % 4 == 0 ? cols / 4 : 0;
    float largest = -INFINITY;
    for (long long i = threadIdx.x; i < vectors; i += 32) {
        const float4 v = reinterpret_cast<const float4*>(in)[i];
        largest = fmaxf(largest, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    }
    for (long long i = vectors * 4 + threadIdx.x; i < cols; i += 32) largest = fmaxf(largest, in[i]);
    for (int offset = 16; offset > 0; offset >>= 1) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    float total = 0.0f;
    for (long long i = threadIdx.x; i < vectors; i += 32) {
        const float4 v = reinterpret_cast<const float4*>(in)[i];
        total += (expf(v.x - largest) + expf(v.y - largest)) + (expf(v.z - largest) + expf(v.w - largest));
    }
    for (long long i = vectors * 4 + threadIdx.x; i < cols; i += 32) total += expf(in[i] - largest);
    for (int offset = 16; offset > 0; offset >>= 1) total += __shfl_xor_sync(0xffffffffu, total, offset);
    for (long long i = threadIdx.x; i < vectors; i += 32) {
        const float4 v = reinterpret_cast<const float4*>(in)[i];
        float4 result;
        result.x = @RESULT(v.x)@;
        result.y = @RESULT(v.y)@;
        result.z = @RESULT(v.z)@;
        result.w = @RESULT(v.w)@;
        reinterpret_cast<float4*>(out)[i] = result;
    }
    for (long long i = vectors * 4 + threadIdx.x; i < cols; i += 32) {
        const float v = in[i];
        out[i] = @RESULT(v)@;
    }
}

void launch(const float* x, float* y, long long rows, long long cols) {
    softmax_rows<<<dim3((rows + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK), dim3(32, ROWS_PER_BLOCK)>>>(x, y, rows, cols);
}
