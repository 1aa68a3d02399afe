// y[o][j][c] = x[o][index[o][j][c]][c] with x viewed as [outer, length, inner]; a grid-stride loop.
extern "C" __global__ void gather(const @T@* __restrict__ x, const @INDEX@* __restrict__ index, @T@* __restrict__ y, long long outer, long long length, long long count, long long inner) {
    const long long n = outer * count * inner;
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const long long o = i / (count * inner);
        const long long c = i % inner;
        y[i] = x[(o * length + index[i]) * inner + c];
    }
}

void launch(const @T@* x, const @INDEX@* index, @T@* y, long long outer, long long length, long long count, long long inner, int max_blocks) {
    const int threads = 256;
    long long blocks = (outer * count * inner + threads - 1) / threads;
    if (blocks > max_blocks) blocks = max_blocks;
    gather<<<dim3(blocks), dim3(threads)>>>(x, index, y, outer, length, count, inner);
}
