// y[o][j][c] = x[o][index[o][j][c]][c] with x viewed as [outer, length, inner]; one thread per element.
extern "C" __global__ void gather(const @T@* __restrict__ x, const @INDEX@* __restrict__ index, @T@* __restrict__ y, long long outer, long long length, long long count, long long inner) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= outer * count * inner) return;
    const long long o = i / (count * inner);
    y[i] = x[(o * length + index[i]) * inner + i % inner];
}

void launch(const @T@* x, const @INDEX@* index, @T@* y, long long outer, long long length, long long count, long long inner, int max_blocks) {
    const int threads = 256;
    gather<<<dim3((outer * count * inner + threads - 1) / threads), dim3(threads)>>>(x, index, y, outer, length, count, inner);
}
