// One LSTM layer in one direction: a tiled product of all inputs with the weights, then one block per
// sequence that keeps the hidden state, double buffered, and the cell state in shared memory.
@RECURRENT_PROJECT@
__device__ float sigmoid(float v) {
    return 1.0f / (1.0f + expf(-v));
}

extern "C" __global__ void lstm_steps(const float* __restrict__ products, const float* __restrict__ w_hidden,@BIAS_PARAMETER@
                                      const float* __restrict__ h0, const float* __restrict__ c0, float* __restrict__ y,
                                      float* __restrict__ c, int batch, int steps, int hidden, int width, int offset,
                                      int backward) {
    extern __shared__ float shared[];
    float* h = shared;                   // [hidden]
    float* h_next = shared + hidden;     // [hidden]
    float* cells = shared + 2 * hidden;  // [hidden]
    int n = blockIdx.x;
    for (int j = threadIdx.x; j < hidden; j += blockDim.x) {
        h[j] = h0[n * hidden + j];
        cells[j] = c0[n * hidden + j];
    }
    __syncthreads();
    for (int s = 0; s < steps; ++s) {
        int t = backward ? steps - 1 - s : s;
        const float* p = products + (long long)(@ROW(t, n)@) * 4 * hidden;
        for (int j = threadIdx.x; j < hidden; j += blockDim.x) {
            float input = p[j] + @BIAS(0)@;
            float forget = p[hidden + j] + @BIAS(1)@;
            float cell = p[2 * hidden + j] + @BIAS(2)@;
            float output = p[3 * hidden + j] + @BIAS(3)@;
            const float* w = w_hidden + (long long)j * hidden;
            for (int k = 0; k < hidden; ++k) {
                input += h[k] * w[k];
                forget += h[k] * w[(long long)hidden * hidden + k];
                cell += h[k] * w[2LL * hidden * hidden + k];
                output += h[k] * w[3LL * hidden * hidden + k];
            }
            float next = sigmoid(forget) * cells[j] + sigmoid(input) * tanhf(cell);
            cells[j] = next;
            h_next[j] = sigmoid(output) * tanhf(next);
            y[(long long)(@ROW(t, n)@) * width + offset + j] = h_next[j];
        }
        __syncthreads();
        float* swapped = h;
        h = h_next;
        h_next = swapped;
    }
    for (int j = threadIdx.x; j < hidden; j += blockDim.x) {
        c[n * hidden + j] = cells[j];
    }
}
