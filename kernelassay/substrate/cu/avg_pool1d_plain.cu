// 1-d average pooling over each of the rows [planes, in_length]: one thread per output element.
extern "C" __global__ void avg_pool1d(const float* __restrict__ x, float* __restrict__ y, int planes, int in_length,
                                      int out_length, int kernel_size, int stride, int padding, bool count_include_pad) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)planes * out_length) return;
    int start = index % out_length * stride - padding;
    // A window may hang over the padded end (ceil mode); what lies beyond it never counts.
    int padded_end = min(start + kernel_size, in_length + padding);
    int divisor = padded_end - start;
    int end = min(padded_end, in_length);
    int begin = max(start, 0);
    if (!count_include_pad) divisor = end - begin;

    const float* row = x + index / out_length * in_length;
    float sum = 0.0f;
    for (int i = begin; i < end; ++i) {
        sum += row[i];
    }
    y[index] = sum / divisor;
}

void launch(const float* x, float* y, int planes, int in_length, int out_length, int kernel_size, int stride,
            int padding, bool count_include_pad) {
    long long total = (long long)planes * out_length;
    avg_pool1d<<<dim3((total + 255) / 256), dim3(256)>>>(x, y, planes, in_length, out_length, kernel_size, stride,
                                                         padding, count_include_pad);
}
