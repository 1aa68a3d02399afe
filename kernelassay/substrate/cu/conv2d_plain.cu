// 2-d convolution, input [batch, in_channels, in_h, in_w], weight [out_channels, in_channels / groups,
// kernel_h, kernel_w]: one thread per output element.
extern "C" __global__ void conv2d(const float* __restrict__ input, const float* __restrict__ weight,@BIAS_PARAMETER@
                                  float* __restrict__ output, int batch, int in_channels, int in_h, int in_w,
                                  int out_channels, int out_h, int out_w, int kernel_h, int kernel_w, int stride_h,
                                  int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int groups) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)batch * out_channels * out_h * out_w) return;
    int ow = index % out_w;
    int oh = index / out_w % out_h;
    int oc = index / out_w / out_h % out_channels;
    int n = index / out_w / out_h / out_channels;
    int group_in = in_channels / groups;
    int group = oc / (out_channels / groups);

    float sum = @BIAS@;
    for (int c = 0; c < group_in; ++c) {
        int ic = group * group_in + c;
        for (int kh = 0; kh < kernel_h; ++kh) {
            int ih = oh * stride_h - pad_h + kh * dilation_h;
            if (ih < 0 || ih >= in_h) continue;
            for (int kw = 0; kw < kernel_w; ++kw) {
                int iw = ow * stride_w - pad_w + kw * dilation_w;
                if (iw < 0 || iw >= in_w) continue;
                sum += input[(((long long)n * in_channels + ic) * in_h + ih) * in_w + iw] *
                       weight[(((long long)oc * group_in + c) * kernel_h + kh) * kernel_w + kw];
            }
        }
    }
    output[index] = sum;
}

void launch(const float* input, const float* weight,@BIAS_LAUNCH_PARAMETER@ float* output, int batch, int in_channels,
            int in_h, int in_w, int out_channels, int out_h, int out_w, int kernel_h, int kernel_w, int stride_h,
            int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int groups) {
    long long total = (long long)batch * out_channels * out_h * out_w;
    dim3 block(256);
    dim3 grid((total + 255) / 256);
    conv2d<<<grid, block>>>(input, weight,@BIAS_ARGUMENT@ output, batch, in_channels, in_h, in_w, out_channels, out_h,
                            out_w, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
                            groups);
}
