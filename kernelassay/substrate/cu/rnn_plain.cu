// One layer of a plain recurrent network in one direction, one block per sequence. The hidden state of a
// step is read back from the output.
extern "C" __global__ void rnn_layer(const float* __restrict__ x, const float* __restrict__ w_input,
                                     const float* __restrict__ w_hidden,@BIAS_PARAMETER@ const float* __restrict__ h0,
                                     float* y, int batch, int steps, int features, int hidden, int width, int offset,
                                     int backward) {
    int n = blockIdx.x;
    const float* h = h0 + n * hidden;
    for (int s = 0; s < steps; ++s) {
        int t = backward ? steps - 1 - s : s;
        const float* x_t = x + (long long)(@ROW(t, n)@) * features;
        float* y_t = y + (long long)(@ROW(t, n)@) * width + offset;
        for (int j = threadIdx.x; j < hidden; j += blockDim.x) {
            float acc = @BIAS(0)@;
            for (int k = 0; k < features; ++k) {
                acc += x_t[k] * w_input[j * features + k];
            }
            for (int k = 0; k < hidden; ++k) {
                acc += h[k] * w_hidden[j * hidden + k];
            }
            y_t[j] = @ACTIVATION(acc)@;
        }
        __syncthreads();
        h = y_t;
    }
}
