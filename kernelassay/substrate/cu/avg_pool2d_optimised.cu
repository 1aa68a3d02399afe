// 2-d average pooling, one axis after the other: a block serves one output row, sums the window's rows
// of every input column it covers into shared memory, then adds kernel_w neighbouring column sums.
extern "C" __global__ void avg_pool2d_separable(const float* __restrict__ x, float* __restrict__ y, int in_h, int in_w,
                                                int out_h, int out_w, int kernel_h, int kernel_w, int stride_h,
                                                int stride_w, int pad_h, int pad_w, bool count_include_pad) {
    extern __shared__ float column_sums[];
    int oh = blockIdx.x % out_h;
    int plane_index = blockIdx.x / out_h;
    const float* plane = x + (long long)plane_index * in_h * in_w;
    int ow = blockIdx.y * blockDim.x + threadIdx.x;

    int h_start = oh * stride_h - pad_h;
    int h_end = min(h_start + kernel_h, in_h + pad_h);
    int h_begin = max(h_start, 0);
    int h_stop = min(h_end, in_h);

    int columns = (blockDim.x - 1) * stride_w + kernel_w;
    int first_column = (int)(blockIdx.y * blockDim.x) * stride_w - pad_w;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        int iw = first_column + i;
        float sum = 0.0f;
        if (iw >= 0 && iw < in_w) {
            for (int ih = h_begin; ih < h_stop; ++ih) {
                sum += plane[(long long)ih * in_w + iw];
            }
        }
        column_sums[i] = sum;
    }
    __syncthreads();
    if (ow >= out_w) return;

    float sum = 0.0f;
    for (int kw = 0; kw < kernel_w; ++kw) {
        sum += column_sums[threadIdx.x * stride_w + kw];
    }
    int w_start = ow * stride_w - pad_w;
    int w_end = min(w_start + kernel_w, in_w + pad_w);
    int divisor = (h_end - h_start) * (w_end - w_start);
    if (!count_include_pad) {
        divisor = (h_stop - h_begin) * (min(w_end, in_w) - max(w_start, 0));
    }
    y[((long long)plane_index * out_h + oh) * out_w + ow] = sum / divisor;
}

void launch(const float* x, float* y, int planes, int in_h, int in_w, int out_h, int out_w, int kernel_h, int kernel_w,
            int stride_h, int stride_w, int pad_h, int pad_w, bool count_include_pad) {
    dim3 block(64);
    dim3 grid(planes * out_h, (out_w + 63) / 64);
    int shared = (63 * stride_w + kernel_w) * sizeof(float);
    avg_pool2d_separable<<<grid, block, shared>>>(x, y, in_h, in_w, out_h, out_w, kernel_h, kernel_w, stride_h, stride_w,
                                                  pad_h, pad_w, count_include_pad);
}
