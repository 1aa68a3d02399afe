// One LSTM layer in one direction, one block per sequence. The hidden state of a step is read back from
// the output, the cell state lies in c.
__device__ float sigmoid(float v) {
    return 1.0f / (1.0f + expf(-v));
}

extern "C" __global__ void lstm_layer(const float* __restrict__ x, const float* __restrict__ w_input,
                                      const float* __restrict__ w_hidden,@BIAS_PARAMETER@ const float* __restrict__ h0,
                                      const float* __restrict__ c0, float* y, float* c, int batch, int steps,
                                      int features, int hidden, int width, int offset, int backward) {
    int n = blockIdx.x;
    for (int j = threadIdx.x; j < hidden; j += blockDim.x) {
        c[n * hidden + j] = c0[n * hidden + j];
    }
    const float* h = h0 + n * hidden;
    for (int s = 0; s < steps; ++s) {
        int t = backward ? steps - 1 - s : s;
        const float* x_t = x + (long long)(@ROW(t, n)@) * features;
        float* y_t = y + (long long)(@ROW(t, n)@) * width + offset;
        for (int j = threadIdx.x; j < hidden; j += blockDim.x) {
            float input = @BIAS(0)@;
            float forget = @BIAS(1)@;
            float cell = @BIAS(2)@;
            float output = @BIAS(3)@;
            for (int k = 0; k < features; ++k) {
                input += x_t[k] * w_input[(0 * hidden + j) * features + k];
                forget += x_t[k] * w_input[(1 * hidden + j) * features + k];
                cell += x_t[k] * w_input[(2 * hidden + j) * features + k];
                output += x_t[k] * w_input[(3 * hidden + j) * features + k];
            }
            for (int k = 0; k < hidden; ++k) {
                input += h[k] * w_hidden[(0 * hidden + j) * hidden + k];
                forget += h[k] * w_hidden[(1 * hidden + j) * hidden + k];
                cell += h[k] * w_hidden[(2 * hidden + j) * hidden + k];
                output += h[k] * w_hidden[(3 * hidden + j) * hidden + k];
            }
            float next = sigmoid(forget) * c[n * hidden + j] + sigmoid(input) * tanhf(cell);
            c[n * hidden + j] = next;
            y_t[j] = sigmoid(output) * tanhf(next);
        }
        __syncthreads();
        h = y_t;
    }
}
