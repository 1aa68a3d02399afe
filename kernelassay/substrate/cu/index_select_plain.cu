// y[o][j][c] = x[o][index[j]][c] with x viewed as [outer, length, inner]; one thread per element of y.
extern "C" __global__ void index_select(const @T@* __restrict__ x, const @INDEX@* __restrict__ index, @T@* __restrict__ y, long long outer, long long length, long long count, long long inner) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= outer * count * inner) return;
    const long long c = i % inner;
    const long long j = i / inner % count;
    const long long o = i / inner / count;
    const long long source = @WRAP(index[j])@;
    y[i] = x[(o * length + source) * inner + c];
}

void launch(const @T@* x, const @INDEX@* index, @T@* y, long long outer, long long length, long long count, long long inner, int max_blocks) {
    const int threads = 256;
    index_select<<<dim3((outer * count * inner + threads - 1) / threads), dim3(threads)>>>(x, index, y, outer, length, count, inner);
}
