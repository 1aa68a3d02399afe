// One thread per row; the row is reduced from left to right.
extern "C" __global__ void reduce_rows(const @IN@* __restrict__ x, @OUT@* __restrict__ y, long long rows, long long cols) {
    const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    @ACC@ acc = @IDENTITY@;
    for (long long i = 0; i < cols; ++i) {
        const @ACC@ v = x[row * cols + i];
        acc = @COMBINE(acc, @MAP(v)@)@;
    }
    y[row] = @FINISH(acc, cols)@;
}

void launch(const @IN@* x, @OUT@* y, long long rows, long long cols) {
    reduce_rows<<<dim3((rows + 127) / 128), dim3(128)>>>(x, y, rows, cols);
}
