// 3-d transposed convolution, weight [in_channels, out_channels / groups, kernel_d, kernel_h, kernel_w]:
// one thread per output element gathers every input voxel whose scatter reaches it.
extern "C" __global__ void conv_transpose3d(const float* __restrict__ input, const float* __restrict__ weight,@BIAS_PARAMETER@
                                            float* __restrict__ output, int batch, int in_channels, int in_d, int in_h,
                                            int in_w, int out_channels, int out_d, int out_h, int out_w, int kernel_d,
                                            int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w,
                                            int pad_d, int pad_h, int pad_w, int dilation_d, int dilation_h,
                                            int dilation_w, int groups) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)batch * out_channels * out_d * out_h * out_w) return;
    long long rest = index;
    int ow = rest % out_w;
    rest /= out_w;
    int oh = rest % out_h;
    rest /= out_h;
    int od = rest % out_d;
    rest /= out_d;
    int oc = rest % out_channels;
    int n = rest / out_channels;
    int group_in = in_channels / groups;
    int group_out = out_channels / groups;
    int group = oc / group_out;

    float sum = @BIAS@;
    for (int c = 0; c < group_in; ++c) {
        int ic = group * group_in + c;
        const float* volume = input + ((long long)n * in_channels + ic) * in_d * in_h * in_w;
        const float* filter = weight + ((long long)ic * group_out + oc % group_out) * kernel_d * kernel_h * kernel_w;
        for (int kd = 0; kd < kernel_d; ++kd) {
            int reach_d = od + pad_d - kd * dilation_d;
            if (reach_d < 0 || reach_d % stride_d != 0 || reach_d / stride_d >= in_d) continue;
            for (int kh = 0; kh < kernel_h; ++kh) {
                int reach_h = oh + pad_h - kh * dilation_h;
                if (reach_h < 0 || reach_h % stride_h != 0 || reach_h / stride_h >= in_h) continue;
                for (int kw = 0; kw < kernel_w; ++kw) {
                    int reach_w = ow + pad_w - kw * dilation_w;
                    if (reach_w < 0 || reach_w % stride_w != 0 || reach_w / stride_w >= in_w) continue;
                    long long voxel = ((long long)(reach_d / stride_d) * in_h + reach_h / stride_h) * in_w;
                    sum += volume[voxel + reach_w / stride_w] * filter[(kd * kernel_h + kh) * kernel_w + kw];
                }
            }
        }
    }
    output[index] = sum;
}

void launch(const float* input, const float* weight,@BIAS_LAUNCH_PARAMETER@ float* output, int batch, int in_channels,
            int in_d, int in_h, int in_w, int out_channels, int out_d, int out_h, int out_w, int kernel_d, int kernel_h,
            int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h, int pad_w, int dilation_d,
            int dilation_h, int dilation_w, int groups) {
    long long total = (long long)batch * out_channels * out_d * out_h * out_w;
    dim3 block(256);
    dim3 grid((total + 255) / 256);
    conv_transpose3d<<<grid, block>>>(input, weight,@BIAS_ARGUMENT@ output, batch, in_channels, in_d, in_h, in_w,
                                      out_channels, out_d, out_h, out_w, kernel_d, kernel_h, kernel_w, stride_d,
                                      stride_h, stride_w, pad_d, pad_h, pad_w, dilation_d, dilation_h, dilation_w,
                                      groups);
}
