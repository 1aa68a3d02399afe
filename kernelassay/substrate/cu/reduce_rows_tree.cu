// One block per row. The partial results fold in shared memory, as many as there are: the tree need not
// have a power of two of leaves.
#define THREADS 192

extern "C" __global__ void reduce_rows(const @IN@* __restrict__ x, @OUT@* __restrict__ y, long long rows, long long cols) {
    __shared__ @ACC@ partial[THREADS];
    const @IN@* row = x + blockIdx.x * cols;
    @ACC@ acc = @IDENTITY@;
    for (long long i = threadIdx.x; i < cols; i += THREADS) {
        const @ACC@ v = row[i];
        acc = @COMBINE(acc, @MAP(v)@)@;
    }
    partial[threadIdx.x] = acc;
    __syncthreads();
    int count = min(cols, (long long)THREADS);
    while (count > 1) {
        const int kept = (count + 1) / 2;
        if (threadIdx.x + kept < count) {
            const @ACC@ other = partial[threadIdx.x + kept];
            acc = @COMBINE(acc, other)@;
            partial[threadIdx.x] = acc;
        }
        __syncthreads();
        count = kept;
    }
    if (threadIdx.x == 0) y[blockIdx.x] = @FINISH(acc, cols)@;
}

void launch(const @IN@* x, @OUT@* y, long long rows, long long cols) {
    reduce_rows<<<dim3(rows), dim3(THREADS)>>>(x, y, rows, cols);
}
