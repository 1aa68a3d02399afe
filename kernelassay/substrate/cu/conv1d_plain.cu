// 1-d convolution, input [batch, in_channels, in_length], weight [out_channels, in_channels / groups,
// kernel_size]: one thread per output element.
extern "C" __global__ void conv1d(const float* __restrict__ input, const float* __restrict__ weight,@BIAS_PARAMETER@
                                  float* __restrict__ output, int batch, int in_channels, int in_length,
                                  int out_channels, int out_length, int kernel_size, int stride, int padding,
                                  int dilation, int groups) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)batch * out_channels * out_length) return;
    int x = index % out_length;
    int oc = index / out_length % out_channels;
    int n = index / out_length / out_channels;
    int group_in = in_channels / groups;
    int group = oc / (out_channels / groups);

    float sum = @BIAS@;
    for (int c = 0; c < group_in; ++c) {
        const float* row = input + ((long long)n * in_channels + group * group_in + c) * in_length;
        const float* taps = weight + ((long long)oc * group_in + c) * kernel_size;
        for (int k = 0; k < kernel_size; ++k) {
            int i = x * stride - padding + k * dilation;
            if (i >= 0 && i < in_length) {
                sum += row[i] * taps[k];
            }
        }
    }
    output[index] = sum;
}

void launch(const float* input, const float* weight,@BIAS_LAUNCH_PARAMETER@ float* output, int batch, int in_channels,
            int in_length, int out_channels, int out_length, int kernel_size, int stride, int padding, int dilation,
            int groups) {
    long long total = (long long)batch * out_channels * out_length;
    dim3 block(128);
    dim3 grid((total + 127) / 128);
    conv1d<<<grid, block>>>(input, weight,@BIAS_ARGUMENT@ output, batch, in_channels, in_length, out_channels, out_length,
                            kernel_size, stride, padding, dilation, groups);
}
