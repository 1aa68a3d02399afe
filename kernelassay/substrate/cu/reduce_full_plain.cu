// Each thread reduces a strided share of x; one thread then reduces the shares.
extern "C" __global__ void reduce_shares(const @IN@* __restrict__ x, @ACC@* __restrict__ partial, long long n, long long shares) {
    const long long share = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (share >= shares) return;
    @ACC@ acc = @IDENTITY@;
    for (long long i = share; i < n; i += shares) {
        const @ACC@ v = x[i];
        acc = @COMBINE(acc, @MAP(v)@)@;
    }
    partial[share] = acc;
}

extern "C" __global__ void reduce_final(const @ACC@* __restrict__ partial, @OUT@* __restrict__ y, long long shares, long long n) {
    @ACC@ acc = @IDENTITY@;
    for (long long i = 0; i < shares; ++i) {
        const @ACC@ other = partial[i];
        acc = @COMBINE(acc, other)@;
    }
    y[0] = @FINISH(acc, n)@;
}

void launch(const @IN@* x, @OUT@* y, long long n, int max_blocks) {
    long long shares = (n + 31) / 32;
    if (shares > 16384) shares = 16384;
    @ACC@* partial;
    cudaMalloc(&partial, shares * sizeof(@ACC@));
    reduce_shares<<<dim3((shares + 127) / 128), dim3(128)>>>(x, partial, n, shares);
    reduce_final<<<dim3(1), dim3(1)>>>(partial, y, shares, n);
}
