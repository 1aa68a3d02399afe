// One block per row: every thread keeps what its running sum loses to rounding and gives it back to the
// next term (Kahan); then warp shuffles, one shared word per warp.
@BLOCK_REDUCE@
extern "C" __global__ void reduce_rows(const @IN@* __restrict__ x, @OUT@* __restrict__ y, long long rows, long long cols) {
    const @IN@* row = x + blockIdx.x * cols;
    @ACC@ acc = @IDENTITY@;
    @ACC@ lost = @IDENTITY@;
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) {
        const @ACC@ v = row[i];
        const @ACC@ term = @MAP(v)@ - lost;
        const @ACC@ sum = acc + term;
        lost = (sum - acc) - term;
        acc = sum;
    }
    acc = block_reduce(acc);
    if (threadIdx.x == 0) y[blockIdx.x] = @FINISH(acc, cols)@;
}

void launch(const @IN@* x, @OUT@* y, long long rows, long long cols) {
    int threads = 256;
    if (cols < 256) threads = 64;
    reduce_rows<<<dim3(rows), dim3(threads)>>>(x, y, rows, cols);
}
