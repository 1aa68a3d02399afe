// x is [outer, length, inner], reduced over length. One thread per column and stretch of length, folding
// its result into the column's word by an atomic whose outcome does not depend on the order.
#define STRETCH 16
@KEYS@
extern "C" __global__ void clear(@KEY@* __restrict__ words, long long columns) {
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index < columns) words[index] = @ENCODE(@IDENTITY@)@;
}

extern "C" __global__ void reduce_columns(const @IN@* __restrict__ x, @KEY@* __restrict__ words, long long outer, long long length, long long inner) {
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= outer * inner) return;
    const long long o = index / inner;
    const long long column = index % inner;
    const long long first = (long long)blockIdx.y * STRETCH;
    const long long end = min(first + STRETCH, length);
    @ACC@ acc = @IDENTITY@;
    for (long long k = first; k < end; ++k) {
        const @ACC@ v = x[(o * length + k) * inner + column];
        acc = @COMBINE(acc, @MAP(v)@)@;
    }
    @ATOMIC@(&words[index], @ENCODE(acc)@);
}

extern "C" __global__ void finish(const @KEY@* __restrict__ words, @OUT@* __restrict__ y, long long columns, long long length) {
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= columns) return;
    const @ACC@ acc = @DECODE(words[index])@;
    y[index] = @FINISH(acc, length)@;
}

void launch(const @IN@* x, @OUT@* y, long long outer, long long length, long long inner) {
    const long long columns = outer * inner;
    const long long blocks = (columns + 127) / 128;
    @KEY@* words;
    cudaMalloc(&words, columns * sizeof(@KEY@));
    clear<<<dim3(blocks), dim3(128)>>>(words, columns);
    reduce_columns<<<dim3(blocks, (length + STRETCH - 1) / STRETCH), dim3(128)>>>(x, words, outer, length, inner);
    finish<<<dim3(blocks), dim3(128)>>>(words, y, columns, length);
}
