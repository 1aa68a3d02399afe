// One block per row: float4 loads where rows are 16-byte aligned, warp shuffles, one shared word per warp.
@BLOCK_REDUCE@
extern "C" __global__ void reduce_rows(const float* __restrict__ x, float* __restrict__ y, long long rows, long long cols) {
    const float* row = x + blockIdx.x * cols;
    const long long vectors = cols % 4 == 0 ? cols / 4 : 0;
    float acc = @IDENTITY@;
    for (long long i = threadIdx.x; i < vectors; i += blockDim.x) {
        const float4 v = reinterpret_cast<const float4*>(row)[i];
        acc = @COMBINE(acc, @MAP(v.x)@)@;
        acc = @COMBINE(acc, @MAP(v.y)@)@;
        acc = @COMBINE(acc, @MAP(v.z)@)@;
        acc = @COMBINE(acc, @MAP(v.w)@)@;
    }
    for (long long i = vectors * 4 + threadIdx.x; i < cols; i += blockDim.x) {
        const float v = row[i];
        acc = @COMBINE(acc, @MAP(v)@)@;
    }
    acc = block_reduce(acc);
    if (threadIdx.x == 0) y[blockIdx.x] = @FINISH(acc, cols)@;
}

void launch(const float* x, float* y, long long rows, long long cols) {
    int threads = 256;
    if (cols < 256) threads = 64;
    reduce_rows<<<dim3(rows), dim3(threads)>>>(x, y, rows, cols);
}
