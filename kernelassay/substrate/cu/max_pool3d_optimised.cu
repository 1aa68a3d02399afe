// 3-d max pooling: threadIdx.x runs along output rows, blockIdx.y over (volume, depth, row), and each
// window is clipped to the volume before the loops.
__device__ __forceinline__ int clip_start(int start, int dilation) {
    return start < 0 ? start + (-start + dilation - 1) / dilation * dilation : start;
}

extern "C" __global__ void max_pool3d_rows(const float* __restrict__ x, float* __restrict__ y, int planes, int in_d,
                                           int in_h, int in_w, int out_d, int out_h, int out_w, int kernel_d,
                                           int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w,
                                           int pad_d, int pad_h, int pad_w, int dilation_d, int dilation_h,
                                           int dilation_w) {
    int ow = blockIdx.x * blockDim.x + threadIdx.x;
    long long rows = (long long)planes * out_d * out_h;
    long long row = (long long)blockIdx.y * blockDim.y + threadIdx.y;
    for (; row < rows; row += (long long)gridDim.y * blockDim.y) {
        if (ow >= out_w) continue;
        int oh = row % out_h;
        int od = row / out_h % out_d;
        const float* volume = x + row / out_h / out_d * in_d * in_h * in_w;

        int d_start = od * stride_d - pad_d;
        int h_start = oh * stride_h - pad_h;
        int w_start = ow * stride_w - pad_w;
        int d_end = min(d_start + (kernel_d - 1) * dilation_d + 1, in_d);
        int h_end = min(h_start + (kernel_h - 1) * dilation_h + 1, in_h);
        int w_end = min(w_start + (kernel_w - 1) * dilation_w + 1, in_w);

        float best = -INFINITY;
        for (int id = clip_start(d_start, dilation_d); id < d_end; id += dilation_d) {
            for (int ih = clip_start(h_start, dilation_h); ih < h_end; ih += dilation_h) {
                const float* line = volume + ((long long)id * in_h + ih) * in_w;
                for (int iw = clip_start(w_start, dilation_w); iw < w_end; iw += dilation_w) {
                    best = fmaxf(best, line[iw]);
                }
            }
        }
        y[row * out_w + ow] = best;
    }
}

void launch(const float* x, float* y, int planes, int in_d, int in_h, int in_w, int out_d, int out_h, int out_w,
            int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h,
            int pad_w, int dilation_d, int dilation_h, int dilation_w, int max_blocks) {
    long long row_blocks = ((long long)planes * out_d * out_h + 7) / 8;
    dim3 block(32, 8);
    dim3 grid((out_w + 31) / 32, row_blocks < max_blocks ? row_blocks : max_blocks);
    max_pool3d_rows<<<grid, block>>>(x, y, planes, in_d, in_h, in_w, out_d, out_h, out_w, kernel_d, kernel_h, kernel_w,
                                     stride_d, stride_h, stride_w, pad_d, pad_h, pad_w, dilation_d, dilation_h,
                                     dilation_w);
}
