// One kernel: each block reduces a grid-stride share of x; the block that draws the last ticket reduces
// the shares, in their order.
@BLOCK_REDUCE@
extern "C" __global__ void reduce_split(const @IN@* __restrict__ x, volatile @ACC@* partial, unsigned int* ticket, @OUT@* __restrict__ y, long long n) {
    __shared__ bool last;
    const long long stride = (long long)gridDim.x * blockDim.x;
    @ACC@ acc = @IDENTITY@;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const @ACC@ v = x[i];
        acc = @COMBINE(acc, @MAP(v)@)@;
    }
    acc = block_reduce(acc);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = acc;
        __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    acc = @IDENTITY@;
    for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) {
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
    unsigned int* ticket;
    cudaMalloc(&partial, blocks * sizeof(@ACC@));
    cudaMalloc(&ticket, sizeof(unsigned int));
    cudaMemset(ticket, 0, sizeof(unsigned int));
    reduce_split<<<dim3(blocks), dim3(threads)>>>(x, partial, ticket, y, n);
}
