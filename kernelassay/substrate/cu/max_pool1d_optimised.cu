// 1-d max pooling: each block stages the stretch of one row that its windows cover in shared memory,
// with -inf where the padding is.
extern "C" __global__ void max_pool1d_staged(const float* __restrict__ x, float* __restrict__ y, int in_length,
                                             int out_length, int kernel_size, int stride, int padding, int dilation) {
    extern __shared__ float stretch[];
    int span = (blockDim.x - 1) * stride + (kernel_size - 1) * dilation + 1;
    int o = blockIdx.y * blockDim.x + threadIdx.x;
    int start = (int)(blockIdx.y * blockDim.x) * stride - padding;
    const float* row = x + (long long)blockIdx.x * in_length;

    for (int i = threadIdx.x; i < span; i += blockDim.x) {
        int source = start + i;
        stretch[i] = source >= 0 && source < in_length ? row[source] : -INFINITY;
    }
    __syncthreads();
    if (o >= out_length) return;
    float best = -INFINITY;
    for (int k = 0; k < kernel_size; ++k) {
        best = fmaxf(best, stretch[threadIdx.x * stride + k * dilation]);
    }
    y[(long long)blockIdx.x * out_length + o] = best;
}

void launch(const float* x, float* y, int planes, int in_length, int out_length, int kernel_size, int stride,
            int padding, int dilation) {
    dim3 block(128);
    dim3 grid(planes, (out_length + 127) / 128);
    int span = 127 * stride + (kernel_size - 1) * dilation + 1;
    max_pool1d_staged<<<grid, block, span * sizeof(float)>>>(x, y, in_length, out_length, kernel_size, stride, padding,
                                                             dilation);
}
