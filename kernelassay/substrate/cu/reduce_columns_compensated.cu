// One thread per output element; x is viewed as [outer, length, inner] and summed over length. What the
// running sum loses to rounding is given back to the next term (Kahan).
extern "C" __global__ void reduce_columns(const @IN@* __restrict__ x, @OUT@* __restrict__ y, long long outer, long long length, long long inner) {
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= outer * inner) return;
    const long long o = index / inner;
    const long long column = index % inner;
    @ACC@ acc = @IDENTITY@;
    @ACC@ lost = @IDENTITY@;
    for (long long k = 0; k < length; ++k) {
        const @ACC@ v = x[(o * length + k) * inner + column];
        const @ACC@ term = @MAP(v)@ - lost;
        const @ACC@ sum = acc + term;
        lost = (sum - acc) - term;
        acc = sum;
    }
    y[index] = @FINISH(acc, length)@;
}

void launch(const @IN@* x, @OUT@* y, long long outer, long long length, long long inner) {
    reduce_columns<<<dim3((outer * inner + 127) / 128), dim3(128)>>>(x, y, outer, length, inner);
}
