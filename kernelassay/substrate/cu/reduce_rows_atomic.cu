// Several blocks per row, each reducing one stretch of it and folding its result into the row's word by
// an atomic whose outcome does not depend on the order.
#define STRETCH 512
@KEYS@@BLOCK_REDUCE@
extern "C" __global__ void clear(@KEY@* __restrict__ words, long long rows) {
    const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) words[row] = @ENCODE(@IDENTITY@)@;
}

extern "C" __global__ void reduce_rows(const @IN@* __restrict__ x, @KEY@* __restrict__ words, long long cols) {
    const long long row = blockIdx.x;
    const long long first = (long long)blockIdx.y * STRETCH;
    const long long end = min(first + STRETCH, cols);
    @ACC@ acc = @IDENTITY@;
    for (long long i = first + threadIdx.x; i < end; i += blockDim.x) {
        const @ACC@ v = x[row * cols + i];
        acc = @COMBINE(acc, @MAP(v)@)@;
    }
    acc = block_reduce(acc);
    if (threadIdx.x == 0) @ATOMIC@(&words[row], @ENCODE(acc)@);
}

extern "C" __global__ void finish(const @KEY@* __restrict__ words, @OUT@* __restrict__ y, long long rows, long long cols) {
    const long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const @ACC@ acc = @DECODE(words[row])@;
    y[row] = @FINISH(acc, cols)@;
}

void launch(const @IN@* x, @OUT@* y, long long rows, long long cols) {
    const long long blocks = (rows + 127) / 128;
    @KEY@* words;
    cudaMalloc(&words, rows * sizeof(@KEY@));
    clear<<<dim3(blocks), dim3(128)>>>(words, rows);
    reduce_rows<<<dim3(rows, (cols + STRETCH - 1) / STRETCH), dim3(128)>>>(x, words, cols);
    finish<<<dim3(blocks), dim3(128)>>>(words, y, rows, cols);
}
