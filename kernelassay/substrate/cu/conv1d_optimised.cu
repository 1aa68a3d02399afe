// 1-d convolution: a block computes OC_TILE output channels at blockDim.x positions of one sample.
// The weights of CHUNK input channels at a time are staged in shared memory.
#define OC_TILE 4
#define CHUNK 8

extern "C" __global__ void conv1d_staged(const float* __restrict__ input, const float* __restrict__ weight,@BIAS_PARAMETER@
                                         float* __restrict__ output, int in_channels, int in_length,
                                         int out_channels, int out_length, int kernel_size, int stride, int padding,
                                         int dilation, int groups) {
    extern __shared__ float staged[];  // [OC_TILE][CHUNK][kernel_size]
    int group_in = in_channels / groups;
    int group_out = out_channels / groups;
    int group = blockIdx.y % groups;
    int first = blockIdx.y / groups * OC_TILE;
    int count = min(OC_TILE, group_out - first);
    int oc0 = group * group_out + first;
    int n = blockIdx.z;
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int start = x * stride - padding;

    float acc[OC_TILE] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int c0 = 0; c0 < group_in; c0 += CHUNK) {
        int channels = min(CHUNK, group_in - c0);
        int taps = channels * kernel_size;
        for (int i = threadIdx.x; i < OC_TILE * taps; i += blockDim.x) {
            int o = i / taps;
            int t = i % taps;
            staged[i] = o < count ? weight[((long long)(oc0 + o) * group_in + c0) * kernel_size + t] : 0.0f;
        }
        __syncthreads();
        for (int c = 0; c < channels; ++c) {
            const float* row = input + ((long long)n * in_channels + group * group_in + c0 + c) * in_length;
            for (int k = 0; k < kernel_size; ++k) {
                int i = start + k * dilation;
                float value = x < out_length && i >= 0 && i < in_length ? row[i] : 0.0f;
                for (int o = 0; o < OC_TILE; ++o) {
                    acc[o] += value * staged[o * taps + c * kernel_size + k];
                }
            }
        }
        __syncthreads();
    }

    if (x >= out_length) return;
    for (int o = 0; o < count; ++o) {
        int oc = oc0 + o;
        output[((long long)n * out_channels + oc) * out_length + x] = acc[o]@PLUS_BIAS@;
    }
}

void launch(const float* input, const float* weight,@BIAS_LAUNCH_PARAMETER@ float* output, int batch, int in_channels,
            int in_length, int out_channels, int out_length, int kernel_size, int stride, int padding, int dilation,
            int groups) {
    int tiles = (out_channels / groups + OC_TILE - 1) / OC_TILE;
    dim3 block(128);
    dim3 grid((out_length + 127) / 128, tiles * groups, batch);
    int shared = OC_TILE * CHUNK * kernel_size * sizeof(float);
    conv1d_staged<<<grid, block, shared>>>(input, weight,@BIAS_ARGUMENT@ output, in_channels, in_length, out_channels,
                                           out_length, kernel_size, stride, padding, dilation, groups);
}
