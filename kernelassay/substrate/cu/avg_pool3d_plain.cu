// 3-d average pooling over each of the volumes [planes, in_d, in_h, in_w]: one thread per output element.
extern "C" __global__ void avg_pool3d(const float* __restrict__ x, float* __restrict__ y, int planes, int in_d,
                                      int in_h, int in_w, int out_d, int out_h, int out_w, int kernel_d, int kernel_h,
                                      int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h,
                                      int pad_w, bool count_include_pad) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)planes * out_d * out_h * out_w) return;
    int d_start = index / out_w / out_h % out_d * stride_d - pad_d;
    int h_start = index / out_w % out_h * stride_h - pad_h;
    int w_start = index % out_w * stride_w - pad_w;
    // A window may hang over the padded end (ceil mode); what lies beyond it never counts.
    int d_end = min(d_start + kernel_d, in_d + pad_d);
    int h_end = min(h_start + kernel_h, in_h + pad_h);
    int w_end = min(w_start + kernel_w, in_w + pad_w);
    int divisor = (d_end - d_start) * (h_end - h_start) * (w_end - w_start);
    d_start = max(d_start, 0);
    h_start = max(h_start, 0);
    w_start = max(w_start, 0);
    d_end = min(d_end, in_d);
    h_end = min(h_end, in_h);
    w_end = min(w_end, in_w);
    if (!count_include_pad) divisor = (d_end - d_start) * (h_end - h_start) * (w_end - w_start);

    const float* volume = x + index / out_w / out_h / out_d * in_d * in_h * in_w;
    float sum = 0.0f;
    for (int id = d_start; id < d_end; ++id) {
        for (int ih = h_start; ih < h_end; ++ih) {
            for (int iw = w_start; iw < w_end; ++iw) {
                sum += volume[((long long)id * in_h + ih) * in_w + iw];
            }
        }
    }
    y[index] = sum / divisor;
}

void launch(const float* x, float* y, int planes, int in_d, int in_h, int in_w, int out_d, int out_h, int out_w,
            int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h,
            int pad_w, bool count_include_pad, int max_blocks) {
    long long total = (long long)planes * out_d * out_h * out_w;
    avg_pool3d<<<dim3((total + 255) / 256), dim3(256)>>>(x, y, planes, in_d, in_h, in_w, out_d, out_h, out_w, kernel_d,
                                                         kernel_h, kernel_w, stride_d, stride_h, stride_w, pad_d, pad_h,
                                                         pad_w, count_include_pad);
}
