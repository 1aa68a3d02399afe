// 3-d convolution: a block computes OC_TILE output channels at blockDim.x output voxels of one
// sample, with the taps of one input channel at a time staged in shared memory.
#define OC_TILE 8

extern "C" __global__ void conv3d_staged(const float* __restrict__ input, const float* __restrict__ weight,@BIAS_PARAMETER@
                                         float* __restrict__ output, int in_channels, int in_d, int in_h, int in_w,
                                         int out_channels, int out_d, int out_h, int out_w, int kernel_d, int kernel_h,
                                         int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h,
                                         int pad_w, int dilation_d, int dilation_h, int dilation_w, int groups) {
    extern __shared__ float weight_tile[];  // [OC_TILE][kernel_d][kernel_h][kernel_w]
    int taps = kernel_d * kernel_h * kernel_w;
    int group_in = in_channels / groups;
    int group_out = out_channels / groups;
    int group = blockIdx.y % groups;
    int first = blockIdx.y / groups * OC_TILE;
    int count = min(OC_TILE, group_out - first);
    int oc0 = group * group_out + first;
    int n = blockIdx.z;

    int voxels = out_d * out_h * out_w;
    int voxel = blockIdx.x * blockDim.x + threadIdx.x;
    bool active = voxel < voxels;
    int d0 = voxel / (out_h * out_w) * stride_d - pad_d;
    int h0 = voxel / out_w % out_h * stride_h - pad_h;
    int w0 = voxel % out_w * stride_w - pad_w;

    float acc[OC_TILE];
    for (int o = 0; o < OC_TILE; ++o) acc[o] = 0.0f;
    for (int c = 0; c < group_in; ++c) {
        const float* volume = input + ((long long)n * in_channels + group * group_in + c) * in_d * in_h * in_w;
        for (int i = threadIdx.x; i < OC_TILE * taps; i += blockDim.x) {
            int o = i / taps;
            weight_tile[i] = o < count ? weight[((long long)(oc0 + o) * group_in + c) * taps + i % taps] : 0.0f;
        }
        __syncthreads();
        for (int tap = 0; active && tap < taps; ++tap) {
            int id = d0 + tap / (kernel_h * kernel_w) * dilation_d;
            int ih = h0 + tap / kernel_w % kernel_h * dilation_h;
            int iw = w0 + tap % kernel_w * dilation_w;
            if (id < 0 || id >= in_d || ih < 0 || ih >= in_h || iw < 0 || iw >= in_w) continue;
            float value = volume[((long long)id * in_h + ih) * in_w + iw];
            for (int o = 0; o < OC_TILE; ++o) {
                acc[o] += value * weight_tile[o * taps + tap];
            }
        }
        __syncthreads();
    }

    if (!active) return;
    for (int o = 0; o < count; ++o) {
        int oc = oc0 + o;
        output[((long long)n * out_channels + oc) * voxels + voxel] = acc[o]@PLUS_BIAS@;
    }
}

void launch(const float* input, const float* weight,@BIAS_LAUNCH_PARAMETER@ float* output, int batch, int in_channels,
            int in_d, int in_h, int in_w, int out_channels, int out_d, int out_h, int out_w, int kernel_d, int kernel_h,
            int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h, int pad_w, int dilation_d,
            int dilation_h, int dilation_w, int groups) {
    int voxels = out_d * out_h * out_w;
    int oc_tiles = (out_channels / groups + OC_TILE - 1) / OC_TILE;
    dim3 block(128);
    dim3 grid((voxels + 127) / 128, oc_tiles * groups, batch);
    int shared = OC_TILE * kernel_d * kernel_h * kernel_w * sizeof(float);
    conv3d_staged<<<grid, block, shared>>>(input, weight,@BIAS_ARGUMENT@ output, in_channels, in_d, in_h, in_w,
                                           out_channels, out_d, out_h, out_w, kernel_d, kernel_h, kernel_w, stride_d,
                                           stride_h, stride_w, pad_d, pad_h, pad_w, dilation_d, dilation_h, dilation_w,
                                           groups);
}
