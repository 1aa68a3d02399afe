// One GRU layer in one direction: a tiled product of all inputs with the weights, then one block per
// sequence that keeps the hidden state, double buffered, in shared memory.
@RECURRENT_PROJECT@
__device__ float sigmoid(float v) {
    return 1.0f / (1.0f + expf(-v));
}

extern "C" __global__ void gru_steps(const float* __restrict__ products, const float* __restrict__ w_hidden,@BIAS_PARAMETER@
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
        const float* p = products + (long long)(@ROW(t, n)@) * 3 * hidden;
        for (int j = threadIdx.x; j < hidden; j += blockDim.x) {
            float reset = p[j] + @BIAS(0)@;
            float update = p[hidden + j] + @BIAS(1)@;
            float fresh = p[2 * hidden + j] + @BIAS_INPUT(2)@;
            float remembered = @BIAS_HIDDEN(2)@;
            const float* w = w_hidden + (long long)j * hidden;
            for (int k = 0; k < hidden; ++k) {
                reset += h[k] * w[k];
                update += h[k] * w[(long long)hidden * hidden + k];
                remembered += h[k] * w[2LL * hidden * hidden + k];
            }
            float candidate = tanhf(fresh + sigmoid(reset) * remembered);
            float keep = sigmoid(update);
            h_next[j] = candidate + keep * (h[j] - candidate);
            y[(long long)(@ROW(t, n)@) * width + offset + j] = h_next[j];
        }
        __syncthreads();
        float* swapped = h;
        h = h_next;
        h_next = swapped;
    }
}
