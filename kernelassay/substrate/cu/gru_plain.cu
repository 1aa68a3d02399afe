// One GRU layer in one direction, one block per sequence. The hidden state of a step is read back from the
// output. The reset gate acts on the hidden product together with its bias.
__device__ float sigmoid(float v) {
    return 1.0f / (1.0f + expf(-v));
}

extern "C" __global__ void gru_layer(const float* __restrict__ x, const float* __restrict__ w_input,
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
            float reset = @BIAS(0)@;
            float update = @BIAS(1)@;
            float fresh = @BIAS_INPUT(2)@;
            float remembered = @BIAS_HIDDEN(2)@;
            for (int k = 0; k < features; ++k) {
                reset += x_t[k] * w_input[(0 * hidden + j) * features + k];
                update += x_t[k] * w_input[(1 * hidden + j) * features + k];
                fresh += x_t[k] * w_input[(2 * hidden + j) * features + k];
            }
            for (int k = 0; k < hidden; ++k) {
                reset += h[k] * w_hidden[(0 * hidden + j) * hidden + k];
                update += h[k] * w_hidden[(1 * hidden + j) * hidden + k];
                remembered += h[k] * w_hidden[(2 * hidden + j) * hidden + k];
            }
            float candidate = tanhf(fresh + sigmoid(reset) * remembered);
            float keep = sigmoid(update);
            y_t[j] = (1.0f - keep) * candidate + keep * h[j];
        }
        __syncthreads();
        h = y_t;
    }
}
