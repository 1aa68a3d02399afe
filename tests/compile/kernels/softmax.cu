#define BLOCK 256

__device__ float block_sum(float value, float* partial) {
    int t = threadIdx.x;
    partial[t] = value;
    __syncthreads();
    for (int s = BLOCK / 2; s > 0; s >>= 1) {
        if (t < s) partial[t] += partial[t + s];
        __syncthreads();
    }
    float total = partial[0];
    __syncthreads();
    return total;
}

extern "C" __global__ void softmax_rows(const float* __restrict__ x, float* __restrict__ y,
                                        int rows, int cols) {
    extern __shared__ float partial[];
    int row = blockIdx.x;  // one block per row { not a brace
    int t = threadIdx.x;
    const float* in = x + (size_t)row * cols;
    float* out = y + (size_t)row * cols;
    float top = -INFINITY;
    for (int i = t; i < cols; i += BLOCK) top = fmaxf(top, in[i]);
    partial[t] = top;
    __syncthreads();
    for (int s = BLOCK / 2; s > 0; s >>= 1) {
        if (t < s) partial[t] = fmaxf(partial[t], partial[t + s]);
        __syncthreads();
    }
    top = partial[0];
    __syncthreads();
    float sum = 0.0f;
    for (int i = t; i < cols; i += BLOCK) sum += expf(in[i] - top);
    sum = block_sum(sum, partial);
    for (int i = t; i < cols; i += BLOCK) out[i] = expf(in[i] - top) / sum;
}

void launch(const float* x, float* y, int rows, int cols) {
    softmax_rows<<<dim3(rows), dim3(BLOCK), BLOCK * sizeof(float)>>>(x, y, rows, cols);
}
