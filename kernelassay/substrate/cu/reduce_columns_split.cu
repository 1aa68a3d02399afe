// x is [outer, length, inner], reduced over length. One thread per column and stretch of length; the
// thread of a column that draws the column's last ticket reduces the stretches, in their order.
#define STRETCH 16

extern "C" __global__ void reduce_columns(const @IN@* __restrict__ x, volatile @ACC@* partial, unsigned int* tickets, @OUT@* __restrict__ y, long long outer, long long length, long long inner) {
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long columns = outer * inner;
    if (index >= columns) return;
    const long long o = index / inner;
    const long long column = index % inner;
    const int split = blockIdx.y;
    const long long end = min((long long)(split + 1) * STRETCH, length);
    @ACC@ acc = @IDENTITY@;
    for (long long k = (long long)split * STRETCH; k < end; ++k) {
        const @ACC@ v = x[(o * length + k) * inner + column];
        acc = @COMBINE(acc, @MAP(v)@)@;
    }
    partial[split * columns + index] = acc;
    __threadfence();
    if (atomicAdd(&tickets[index], 1u) != gridDim.y - 1) return;
    acc = @IDENTITY@;
    for (int s = 0; s < gridDim.y; ++s) {
        const @ACC@ other = partial[s * columns + index];
        acc = @COMBINE(acc, other)@;
    }
    y[index] = @FINISH(acc, length)@;
}

void launch(const @IN@* x, @OUT@* y, long long outer, long long length, long long inner) {
    const long long columns = outer * inner;
    const long long splits = (length + STRETCH - 1) / STRETCH;
    @ACC@* partial;
    unsigned int* tickets;
    cudaMalloc(&partial, splits * columns * sizeof(@ACC@));
    cudaMalloc(&tickets, columns * sizeof(unsigned int));
    cudaMemset(tickets, 0, columns * sizeof(unsigned int));
    reduce_columns<<<dim3((columns + 127) / 128, splits), dim3(128)>>>(x, partial, tickets, y, outer, length, inner);
}
