// 2-d max pooling over each of the planes [planes, in_h, in_w]: one thread per output element.
extern "C" __global__ void max_pool2d(const float* __restrict__ x, float* __restrict__ y, int planes, int in_h,
                                      int in_w, int out_h, int out_w, int kernel_h, int kernel_w, int stride_h,
                                      int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)planes * out_h * out_w) return;
    int ow = index % out_w;
    int oh = index / out_w % out_h;
    const float* plane = x + index / out_w / out_h * in_h * in_w;

    float best = -INFINITY;
    for (int kh = 0; kh < kernel_h; ++kh) {
        int ih = oh * stride_h - pad_h + kh * dilation_h;
        if (ih < 0 || ih >= in_h) continue;
        for (int kw = 0; kw < kernel_w; ++kw) {
            int iw = ow * stride_w - pad_w + kw * dilation_w;
            if (iw < 0 || iw >= in_w) continue;
            best = fmaxf(best, plane[(long long)ih * in_w + iw]);
        }
    }
    y[index] = best;
}

void launch(const float* x, float* y, int planes, int in_h, int in_w, int out_h, int out_w, int kernel_h, int kernel_w,
            int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int max_blocks) {
    long long total = (long long)planes * out_h * out_w;
    max_pool2d<<<dim3((total + 255) / 256), dim3(256)>>>(x, y, planes, in_h, in_w, out_h, out_w, kernel_h, kernel_w,
                                                         stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w);
}
