// Each block reduces a grid-stride share of x and folds its result into one word by an atomic whose outcome
// does not depend on the order.
@KEYS@@BLOCK_REDUCE@
extern "C" __global__ void clear(@KEY@* word) {
    word[0] = @ENCODE(@IDENTITY@)@;
}

extern "C" __global__ void reduce_shares(const @IN@* __restrict__ x, @KEY@* __restrict__ word, long long n) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    @ACC@ acc = @IDENTITY@;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const @ACC@ v = x[i];
        acc = @COMBINE(acc, @MAP(v)@)@;
    }
    acc = block_reduce(acc);
    if (threadIdx.x == 0) @ATOMIC@(word, @ENCODE(acc)@);
}

extern "C" __global__ void finish(const @KEY@* __restrict__ word, @OUT@* __restrict__ y, long long n) {
    const @ACC@ acc = @DECODE(word[0])@;
    y[0] = @FINISH(acc, n)@;
}

void launch(const @IN@* x, @OUT@* y, long long n, int max_blocks) {
    const int threads = 256;
    long long blocks = (n + threads * 4 - 1) / (threads * 4);
    if (blocks > max_blocks) blocks = max_blocks;
    @KEY@* word;
    cudaMalloc(&word, sizeof(@KEY@));
    clear<<<dim3(1), dim3(1)>>>(word);
    reduce_shares<<<dim3(blocks), dim3(threads)>>>(x, word, n);
    finish<<<dim3(1), dim3(1)>>>(word, y, n);
}
