// Adaptive average pooling over each of the planes [planes, in_h, in_w]: one thread per output element. Window o of n
// over an extent of m reaches from floor(o * m / n) to ceil((o + 1) * m / n), so that neighbours may overlap.
extern "C" __global__ void adaptive_avg_pool2d(const float* __restrict__ x, float* __restrict__ y, int planes, int in_h,
                                               int in_w, int out_h, int out_w) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)planes * out_h * out_w) return;
    int oh = index / out_w % out_h;
    int ow = index % out_w;
    int h_start = (long long)oh * in_h / out_h;
    int w_start = (long long)ow * in_w / out_w;
    int h_end = ((long long)(oh + 1) * in_h + out_h - 1) / out_h;
    int w_end = ((long long)(ow + 1) * in_w + out_w - 1) / out_w;

    const float* plane = x + index / out_w / out_h * in_h * in_w;
    float sum = 0.0f;
    for (int ih = h_start; ih < h_end; ++ih) {
        for (int iw = w_start; iw < w_end; ++iw) {
            sum += plane[(long long)ih * in_w + iw];
        }
    }
    y[index] = sum / ((h_end - h_start) * (w_end - w_start));
}

void launch(const float* x, float* y, int planes, int in_h, int in_w, int out_h, int out_w, int max_blocks) {
    long long total = (long long)planes * out_h * out_w;
    adaptive_avg_pool2d<<<dim3((total + 255) / 256), dim3(256)>>>(x, y, planes, in_h, in_w, out_h, out_w);
}
