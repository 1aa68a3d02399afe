// One block per row; the statistics read four elements at a time where rows are 16-byte aligned, and the
// rest one by one.
@BLOCK_SUM@
extern "C" __global__ void layer_norm(const float* __restrict__ x, @AFFINE_POINTERS@float* __restrict__ y, long long rows, long long cols) {
    const float* row = x + blockIdx.x * cols;
    const float4* row4 = reinterpret_cast<const float4*>(row);
    const long long vectors = cols % 4 == 0 ? cols / 4 : 0;
    float sum = 0.0f;
    for (long long i = threadIdx.x; i < vectors; i += blockDim.x) {
        const float4 v = row4[i];
        sum += (v.x + v.y) + (v.z + v.w);
    }
    for (long long i = vectors * 4 + threadIdx.x; i < cols; i += blockDim.x) sum += row[i];
    const float mean = block_sum(sum) / cols;
    float squares = 0.0f;
    for (long long i = threadIdx.x; i < vectors; i += blockDim.x) {
        const float4 v = row4[i];
        const float dx = v.x - mean;
        const float dy = v.y - mean;
        const float dz = v.z - mean;
        const float dw = v.w - mean;
        squares += (dx * dx + dy * dy) + (dz * dz + dw * dw);
    }
    for (long long i = vectors * 4 + threadIdx.x; i < cols; i += blockDim.x) {
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
    if (cols < 1024) threads = 64;
    layer_norm<<<dim3(rows), dim3(threads)>>>(x, @AFFINE_ARGUMENTS@y, rows, cols);
}
