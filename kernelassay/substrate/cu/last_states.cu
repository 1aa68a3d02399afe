
// The hidden states of one direction after its last step, out of the outputs of a layer.
extern "C" __global__ void last_states(const float* __restrict__ y, float* __restrict__ last, int batch, int steps,
                                       int hidden, int width, int offset, int backward) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (long long)batch * hidden) return;
    int n = i / hidden;
    int t = backward ? 0 : steps - 1;
    last[i] = y[(long long)(@ROW(t, n)@) * width + offset + i % hidden];
}
