// 2-d max pooling: a grid-stride loop over the outputs, each window clipped to the image beforehand
// so that the inner loops need no tests.
extern "C" __global__ void max_pool2d_clipped(const float* __restrict__ x, float* __restrict__ y, long long total,
                                              int in_h, int in_w, int out_h, int out_w, int kernel_h, int kernel_w,
                                              int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h,
                                              int dilation_w) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x; index < total; index += step) {
        int ow = index % out_w;
        int oh = index / out_w % out_h;
        const float* plane = x + index / out_w / out_h * in_h * in_w;

        int h_start = oh * stride_h - pad_h;
        int w_start = ow * stride_w - pad_w;
        int h_end = min(h_start + (kernel_h - 1) * dilation_h + 1, in_h);
        int w_end = min(w_start + (kernel_w - 1) * dilation_w + 1, in_w);
        while (h_start < 0) h_start += dilation_h;
        while (w_start < 0) w_start += dilation_w;

        float best = -INFINITY;
        for (int ih = h_start; ih < h_end; ih += dilation_h) {
            for (int iw = w_start; iw < w_end; iw += dilation_w) {
                best = fmaxf(best, plane[(long long)ih * in_w + iw]);
            }
        }
        y[index] = best;
    }
}

void launch(const float* x, float* y, int planes, int in_h, int in_w, int out_h, int out_w, int kernel_h, int kernel_w,
            int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int max_blocks) {
    long long total = (long long)planes * out_h * out_w;
    long long blocks = (total + 255) / 256;
    dim3 block(256);
    dim3 grid(blocks < max_blocks ? blocks : max_blocks);
    max_pool2d_clipped<<<grid, block>>>(x, y, total, in_h, in_w, out_h, out_w, kernel_h, kernel_w, stride_h, stride_w,
                                        pad_h, pad_w, dilation_h, dilation_w);
}
