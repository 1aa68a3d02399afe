// Several blocks per row, each reducing one stretch of it; the block of a row that draws the row's last
// ticket reduces the stretches, in their order.
#define STRETCH 1024
@BLOCK_REDUCE@
extern "C" __global__ void reduce_rows(const @IN@* __restrict__ x, volatile @ACC@* partial, unsigned int* tickets, @OUT@* __restrict__ y, long long rows, long long cols, int splits) {
    __shared__ bool last;
    const long long row = blockIdx.x / splits;
    const int split = blockIdx.x % splits;
    const long long first = (long long)split * STRETCH;
    const long long end = min(first + STRETCH, cols);
    @ACC@ acc = @IDENTITY@;
    for (long long i = first + threadIdx.x; i < end; i += blockDim.x) {
        const @ACC@ v = x[row * cols + i];
        acc = @COMBINE(acc, @MAP(v)@)@;
    }
    acc = block_reduce(acc);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = acc;
        __threadfence();
        last = atomicAdd(&tickets[row], 1u) == splits - 1;
    }
    __syncthreads();
    if (!last) return;
    acc = @IDENTITY@;
    for (int s = threadIdx.x; s < splits; s += blockDim.x) {
        const @ACC@ other = partial[row * splits + s];
        acc = @COMBINE(acc, other)@;
    }
    acc = block_reduce(acc);
    if (threadIdx.x == 0) y[row] = @FINISH(acc, cols)@;
}

void launch(const @IN@* x, @OUT@* y, long long rows, long long cols) {
    int splits = (cols + STRETCH - 1) / STRETCH;
    @ACC@* partial;
    unsigned int* tickets;
    cudaMalloc(&partial, rows * splits * sizeof(@ACC@));
    cudaMalloc(&tickets, rows * sizeof(unsigned int));
    cudaMemset(tickets, 0, rows * sizeof(unsigned int));
    reduce_rows<<<dim3(rows * splits), dim3(128)>>>(x, partial, tickets, y, rows, cols, splits);
}
