// 1-d transposed convolution in gather form: a block computes blockDim.x positions of one output
// channel of one sample, with that channel's taps staged in shared memory CHUNK inputs at a time.
#define CHUNK 16

extern "C" __global__ void conv_transpose1d_staged(const float* __restrict__ input, const float* __restrict__ weight,@BIAS_PARAMETER@
                                                   float* __restrict__ output, int in_channels, int in_length,
                                                   int out_channels, int out_length, int kernel_size, int stride,
                                                   int padding, int dilation, int groups) {
    extern __shared__ float taps[];  // [CHUNK][kernel_size]
    int group_in = in_channels / groups;
    int group_out = out_channels / groups;
    int group = blockIdx.y % groups;
    int channel = blockIdx.y / groups;
    int oc = group * group_out + channel;
    int n = blockIdx.z;
    int x = blockIdx.x * blockDim.x + threadIdx.x;

    float sum = 0.0f;
    for (int c0 = 0; c0 < group_in; c0 += CHUNK) {
        int channels = min(CHUNK, group_in - c0);
        int ic0 = group * group_in + c0;
        for (int i = threadIdx.x; i < channels * kernel_size; i += blockDim.x) {
            int c = i / kernel_size;
            int k = i % kernel_size;
            taps[i] = weight[((long long)(ic0 + c) * group_out + channel) * kernel_size + k];
        }
        __syncthreads();
        for (int k = 0; k < kernel_size; ++k) {
            int reach = x + padding - k * dilation;
            int i = reach / stride;
            if (x < out_length && reach >= 0 && reach % stride == 0 && i < in_length) {
                for (int c = 0; c < channels; ++c) {
                    sum += input[((long long)n * in_channels + ic0 + c) * in_length + i] * taps[c * kernel_size + k];
                }
            }
        }
        __syncthreads();
    }
    if (x < out_length) {
        output[((long long)n * out_channels + oc) * out_length + x] = sum@PLUS_BIAS@;
    }
}

void launch(const float* input, const float* weight,@BIAS_LAUNCH_PARAMETER@ float* output, int batch, int in_channels,
            int in_length, int out_channels, int out_length, int kernel_size, int stride, int padding, int dilation,
            int groups) {
    dim3 block(128);
    dim3 grid((out_length + 127) / 128, out_channels, batch);
    int shared = CHUNK * kernel_size * sizeof(float);
    conv_transpose1d_staged<<<grid, block, shared>>>(input, weight,@BIAS_ARGUMENT@ output, in_channels, in_length,
                                                     out_channels, out_length, kernel_size, stride, padding, dilation,
                                                     groups);
}
