// 1-d transposed convolution, weight [in_channels, out_channels / groups, kernel_size]: one thread per
// output element gathers every input element whose scatter reaches it.
extern "C" __global__ void conv_transpose1d(const float* __restrict__ input, const float* __restrict__ weight,@BIAS_PARAMETER@
                                            float* __restrict__ output, int batch, int in_channels, int in_length,
                                            int out_channels, int out_length, int kernel_size, int stride, int padding,
                                            int dilation, int groups) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)batch * out_channels * out_length) return;
    int x = index % out_length;
    int oc = index / out_length % out_channels;
    int n = index / out_length / out_channels;
    int group_in = in_channels / groups;
    int group_out = out_channels / groups;
    int group = oc / group_out;

    float sum = @BIAS@;
    for (int k = 0; k < kernel_size; ++k) {
        int reach = x + padding - k * dilation;
        if (reach < 0 || reach % stride != 0) continue;
        int i = reach / stride;
        if (i >= in_length) continue;
        for (int c = 0; c < group_in; ++c) {
            int ic = group * group_in + c;
            sum += input[((long long)n * in_channels + ic) * in_length + i] *
                   weight[((long long)ic * group_out + oc % group_out) * kernel_size + k];
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
    conv_transpose1d<<<grid, block>>>(input, weight,@BIAS_ARGUMENT@ output, batch, in_channels, in_length, out_channels,
                                      out_length, kernel_size, stride, padding, dilation, groups);
}
