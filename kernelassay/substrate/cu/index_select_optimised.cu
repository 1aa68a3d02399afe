// y[o][j][c] = x[o][index[j]][c] with x viewed as [outer, length, inner]. A warp copies one slice at a
// time, so that both sides coalesce and the index is read once a slice.
extern "C" __global__ void index_select(const @T@* __restrict__ x, const @INDEX@* __restrict__ index, @T@* __restrict__ y, long long outer, long long length, long long count, long long inner) {
    const long long warps = (long long)gridDim.x * blockDim.y;
    for (long long slice = (long long)blockIdx.x * blockDim.y + threadIdx.y; slice < outer * count; slice += warps) {
        const long long o = slice / count;
        const long long j = slice % count;
        const long long source = @WRAP(index[j])@;
        const @T@* from = x + (o * length + source) * inner;
        @T@* to = y + slice * inner;
        for (long long c = threadIdx.x; c < inner; c += 32) to[c] = from[c];
    }
}

void launch(const @T@* x, const @INDEX@* index, @T@* y, long long outer, long long length, long long count, long long inner, int max_blocks) {
    long long blocks = (outer * count + 7) / 8;
    if (blocks > max_blocks) blocks = max_blocks;
    index_select<<<dim3(blocks), dim3(32, 8)>>>(x, index, y, outer, length, count, inner);
}
