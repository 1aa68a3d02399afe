// 3-d transposed convolution in gather form: a block computes OC_TILE output channels at blockDim.x
// voxels of one sample, with the taps of one input channel at a time staged in shared memory.
#define OC_TILE 4

// The input coordinate that tap k scatters to an output position (padding included), or -1 if none does.
__device__ __forceinline__ int source_of(int position, int k, int stride, int dilation, int extent) {
    int reach = position - k * dilation;
    if (reach < 0 || reach % stride != 0) return -1;
    return reach / stride < extent ? reach / stride : -1;
}

extern "C" __global__ void conv_transpose3d_staged(const float* __restrict__ input, const float* __restrict__ weight,@BIAS_PARAMETER@
                                                   float* __restrict__ output, int in_channels, int in_d, int in_h,
                                                   int in_w, int out_channels, int out_d, int out_h, int out_w,
                                                   int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h,
                                                   int stride_w, int pad_d, int pad_h, int pad_w, int dilation_d,
                                                   int dilation_h, int dilation_w, int groups) {
    extern __shared__ float weight_tile[];  // [OC_TILE][kernel_d][kernel_h][kernel_w]
    int taps = kernel_d * kernel_h * kernel_w;
    int group_in = in_channels / groups;
    int group_out = out_channels / groups;
    int group = blockIdx.y % groups;
    int first = blockIdx.y / groups * OC_TILE;
    int count = min(OC_TILE, group_out - first);
    int n = blockIdx.z;

    int voxels = out_d * out_h * out_w;
    int voxel = blockIdx.x * blockDim.x + threadIdx.x;
    bool active = voxel < voxels;
    int d = voxel / (out_h * out_w) + pad_d;
    int h = voxel / out_w % out_h + pad_h;
    int w = voxel % out_w + pad_w;

    float acc[OC_TILE] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int c = 0; c < group_in; ++c) {
        int ic = group * group_in + c;
        const float* volume = input + ((long long)n * in_channels + ic) * in_d * in_h * in_w;
        const float* filters = weight + ((long long)ic * group_out + first) * taps;
        for (int i = threadIdx.x; i < OC_TILE * taps; i += blockDim.x) {
            weight_tile[i] = i < count * taps ? filters[i] : 0.0f;
        }
        __syncthreads();
        for (int kd = 0; active && kd < kernel_d; ++kd) {
            int id = source_of(d, kd, stride_d, dilation_d, in_d);
            if (id < 0) continue;
            for (int kh = 0; kh < kernel_h; ++kh) {
                int ih = source_of(h, kh, stride_h, dilation_h, in_h);
                if (ih < 0) continue;
                for (int kw = 0; kw < kernel_w; ++kw) {
                    int iw = source_of(w, kw, stride_w, dilation_w, in_w);
                    if (iw < 0) continue;
                    float value = volume[((long long)id * in_h + ih) * in_w + iw];
                    int tap = (kd * kernel_h + kh) * kernel_w + kw;
                    for (int o = 0; o < OC_TILE; ++o) {
                        acc[o] += value * weight_tile[o * taps + tap];
                    }
                }
            }
        }
        __syncthreads();
    }

    if (!active) return;
    for (int o = 0; o < count; ++o) {
        int oc = group * group_out + first + o;
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
    conv_transpose3d_staged<<<grid, block, shared>>>(input, weight,@BIAS_ARGUMENT@ output, in_channels, in_d, in_h, in_w,
                                                     out_channels, out_d, out_h, out_w, kernel_d, kernel_h, kernel_w,
                                                     stride_d, stride_h, stride_w, pad_d, pad_h, pad_w, dilation_d,
                                                     dilation_h, dilation_w, groups);
}
