// Two kernels: each block reduces a grid-stride share of x, then one block reduces the shares. Partial
// results fold in shared memory, as many as there are.
#define THREADS 192

__device__ @ACC@ fold(@ACC@ acc, int count) {
    __shared__ @ACC@ partial[THREADS];
    partial[threadIdx.x] = acc;
    __syncthreads();
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
    return acc;
}

extern "C" __global__ void reduce_shares(const @IN@* __restrict__ x, @ACC@* __restrict__ partial, long long n) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    @ACC@ acc = @IDENTITY@;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const @ACC@ v = x[i];
        acc = @COMBINE(acc, @MAP(v)@)@;
    }
    const int count = min(n - (long long)blockIdx.x * blockDim.x, (long long)THREADS);
    acc = fold(acc, count);
    if (threadIdx.x == 0) partial[blockIdx.x] = acc;
}

extern "C" __global__ void reduce_final(const @ACC@* __restrict__ partial, @OUT@* __restrict__ y, int shares, long long n) {
    @ACC@ acc = @IDENTITY@;
    for (int i = threadIdx.x; i < shares; i += blockDim.x) {
        const @ACC@ other = partial[i];
        acc = @COMBINE(acc, other)@;
    }
    acc = fold(acc, min(shares, THREADS));
    if (threadIdx.x == 0) y[0] = @FINISH(acc, n)@;
}

void launch(const @IN@* x, @OUT@* y, long long n, int max_blocks) {
    long long blocks = (n + THREADS - 1) / THREADS;
    if (blocks > max_blocks) blocks = max_blocks;
    @ACC@* partial;
    cudaMalloc(&partial, blocks * sizeof(@ACC@));
    reduce_shares<<<dim3(blocks), dim3(THREADS)>>>(x, partial, n);
    reduce_final<<<dim3(1), dim3(THREADS)>>>(partial, y, blocks, n);
}
