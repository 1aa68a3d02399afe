// One layer of a plain recurrent network in one direction: a tiled product of all inputs with the weights,
// then one block per sequence that keeps the hidden state, double buffered, in shared memory.
@RECURRENT_PROJECT@
extern "C" __global__ void rnn_steps(const float* __restrict__ products, const float* __restrict__ w_hidden,@BIAS_PARAMETER@
                                     const float* __restrict__ h0, float* __restrict__ y, int batch, int steps, int hidden,
                                     int width, int offset, int backward) {
    extern __shared__ float shared[];
    float* h = shared;                // [hidden]
    float* h_next = shared + hidden;  // [hidden]
    int n = blockIdx.x;
    for (int j = threadIdx.x; j < hidden; j += blockDim.x) {
        h[j] = h0[n * hidden + j];
    }
    __syncthreads();
    for (int s = 0; s < steps; ++s) {
        int t = backward ? steps - 1 - s : s;
        for (int j = threadIdx.x; j < hidden; j += blockDim.x) {
            float acc = products[(long long)(@ROW(t, n)@) * hidden + j] + @BIAS(0)@;
            const float* w = w_hidden + (long long)j * hidden;
            for (int k = 0; k < hidden; ++k) {
                acc += h[k] * w[k];
            }
            h_next[j] = @ACTIVATION(acc)@;
            y[(long long)(@ROW(t, n)@) * width + offset + j] = h_next[j];
        }
        __syncthreads();
        float* swapped = h;
        h = h_next;
        h_next = swapped;
    }
}
