// 1-d average pooling: each block stages the stretch of one row that its windows cover in shared
// memory, with zeros where the padding is.
extern "C" __global__ void avg_pool1d_staged(const float* __restrict__ x, float* __restrict__ y, int in_length,
                                             int out_length, int kernel_size, int stride, int padding,
                                             bool count_include_pad) {
    extern __shared__ float stretch[];
    int span = (blockDim.x - 1) * stride + kernel_size;
    int o = blockIdx.y * blockDim.x + threadIdx.x;
    int first = (int)(blockIdx.y * blockDim.x) * stride - padding;
    const float* row = x + (long long)blockIdx.x * in_length;

    for (int i = threadIdx.x; i < span; i += blockDim.x) {
        int source = first + i;
        stretch[i] = source >= 0 && source < in_length ? row[source] : 0.0f;
    }
    __syncthreads();
    if (o >= out_length) return;
    float sum = 0.0f;
    for (int k = 0; k < kernel_size; ++k) {
        sum += stretch[threadIdx.x * stride + k];
    }
    int start = o * stride - padding;
    int padded_end = min(start + kernel_size, in_length + padding);
    int divisor = count_include_pad ? padded_end - start : min(padded_end, in_length) - max(start, 0);
    y[(long long)blockIdx.x * out_length + o] = sum / divisor;
}

void launch(const float* x, float* y, int planes, int in_length, int out_length, int kernel_size, int stride,
            int padding, bool count_include_pad) {
    dim3 block(128);
    dim3 grid(planes, (out_length + 127) / 128);
    int span = 127 * stride + kernel_size;
    avg_pool1d_staged<<<grid, block, span * sizeof(float)>>>(x, y, in_length, out_length, kernel_size, stride, padding,
                                                             count_include_pad);
}
