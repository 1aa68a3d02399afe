// Kullback-Leibler divergence of log-probabilities x from @TARGET_KIND@ t, divided by divisor: one
// thread per term, then one thread for the sum.
extern "C" __global__ void kl_div_terms(const float* __restrict__ x, const float* __restrict__ t,
                                        float* __restrict__ terms, long long total) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    terms[i] = @TERM@;
}

extern "C" __global__ void kl_div_sum(const float* __restrict__ terms, float* __restrict__ y, long long total,
                                      float divisor) {
    float sum = 0.0f;
    float lost = 0.0f;  // Kahan compensation: the serial sum may have millions of terms
    for (long long i = 0; i < total; ++i) {
        float term = terms[i] - lost;
        float next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    y[0] = sum / divisor;
}

void launch(const float* x, const float* t, float* y, long long total, float divisor, int max_blocks) {
    float* terms;
    cudaMalloc(&terms, total * sizeof(float));
    kl_div_terms<<<dim3((total + 255) / 256), dim3(256)>>>(x, t, terms, total);
    kl_div_sum<<<dim3(1), dim3(1)>>>(terms, y, total, divisor);
}
