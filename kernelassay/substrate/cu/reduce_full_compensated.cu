// Two kernels: each block sums a grid-stride share of x, then one block sums the shares. Every thread
// keeps what its running sum loses to rounding and gives it back to the next term (Kahan).
@BLOCK_REDUCE@
extern "C" __global__ void reduce_shares(const @IN@* __restrict__ x, @ACC@* __restrict__ partial, long long n) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    @ACC@ acc = @IDENTITY@;
    @ACC@ lost = @IDENTITY@;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const @ACC@ v = x[i];
        const @ACC@ term = @MAP(v)@ - lost;
        const @ACC@ sum = acc + term;
        lost = (sum - acc) - term;
        acc = sum;
    }
    acc = block_reduce(acc);
    if (threadIdx.x == 0) partial[blockIdx.x] = acc;
}

extern "C" __global__ void reduce_final(const @ACC@* __restrict__ partial, @OUT@* __restrict__ y, int shares, long long n) {
    @ACC@ acc = @IDENTITY@;
    for (int i = threadIdx.x; i < shares; i += blockDim.x) {
        const @ACC@ other = partial[i];
        acc = @COMBINE(acc, other)@;
    }
    acc = block_reduce(acc);
    if (threadIdx.x == 0) y[0] = @FINISH(acc, n)@;
}

void launch(const @IN@* x, @OUT@* y, long long n, int max_blocks) {
    const int threads = 256;
    long long blocks = (n + threads * 4 - 1) / (threads * 4);
    if (blocks > max_blocks) blocks = max_blocks;
    @ACC@* partial;
    cudaMalloc(&partial, blocks * sizeof(@ACC@));
    reduce_shares<<<dim3(blocks), dim3(threads)>>>(x, partial, n);
    reduce_final<<<dim3(1), dim3(threads)>>>(partial, y, blocks, n);
}
