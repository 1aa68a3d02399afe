// 1-d max pooling over each of the rows [planes, in_length]: one thread per output element.
extern "C" __global__ void max_pool1d(const float* __restrict__ x, float* __restrict__ y, int planes, int in_length,
                                      int out_length, int kernel_size, int stride, int padding, int dilation) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)planes * out_length) return;
    int o = index % out_length;
    const float* row = x + index / out_length * in_length;
    float best = -INFINITY;
    for (int k = 0; k < kernel_size; ++k) {
        int i = o * stride - padding + k * dilation;
        if (i >= 0 && i < in_length) {
            best = fmaxf(best, row[i]);
        }
    }
    y[index] = best;
}

void launch(const float* x, float* y, int planes, int in_length, int out_length, int kernel_size, int stride,
            int padding, int dilation) {
    long long total = (long long)planes * out_length;
    max_pool1d<<<dim3((total + 255) / 256), dim3(256)>>>(x, y, planes, in_length, out_length, kernel_size, stride,
                                                         padding, dilation);
}
