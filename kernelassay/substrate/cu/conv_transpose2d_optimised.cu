// 2-d transposed convolution in gather form: a block computes OC_TILE output channels at 16 x 16
// pixels of one sample, with the taps of one input channel at a time staged in shared memory.
#define OC_TILE 4
#define SIDE 16

extern "C" __global__ void conv_transpose2d_staged(const float* __restrict__ input, const float* __restrict__ weight,@BIAS_PARAMETER@
                                                   float* __restrict__ output, int in_channels, int in_h, int in_w,
                                                   int out_channels, int out_h, int out_w, int kernel_h, int kernel_w,
                                                   int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h,
                                                   int dilation_w, int groups) {
    extern __shared__ float weight_tile[];  // [OC_TILE][kernel_h][kernel_w]
    int taps = kernel_h * kernel_w;
    int group_in = in_channels / groups;
    int group_out = out_channels / groups;
    int group = blockIdx.y % groups;
    int first = blockIdx.y / groups * OC_TILE;
    int count = min(OC_TILE, group_out - first);
    int n = blockIdx.z;

    int tiles_x = (out_w + SIDE - 1) / SIDE;
    int oh = blockIdx.x / tiles_x * SIDE + threadIdx.y;
    int ow = blockIdx.x % tiles_x * SIDE + threadIdx.x;
    bool active = oh < out_h && ow < out_w;
    int thread = threadIdx.y * SIDE + threadIdx.x;

    float acc[OC_TILE] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int c = 0; c < group_in; ++c) {
        int ic = group * group_in + c;
        const float* plane = input + ((long long)n * in_channels + ic) * in_h * in_w;
        const float* filters = weight + ((long long)ic * group_out + first) * taps;
        for (int i = thread; i < OC_TILE * taps; i += SIDE * SIDE) {
            weight_tile[i] = i < count * taps ? filters[i] : 0.0f;
        }
        __syncthreads();
        for (int kh = 0; active && kh < kernel_h; ++kh) {
            int reach_h = oh + pad_h - kh * dilation_h;
            if (reach_h < 0 || reach_h % stride_h != 0 || reach_h / stride_h >= in_h) continue;
            for (int kw = 0; kw < kernel_w; ++kw) {
                int reach_w = ow + pad_w - kw * dilation_w;
                if (reach_w < 0 || reach_w % stride_w != 0 || reach_w / stride_w >= in_w) continue;
                float value = plane[(long long)(reach_h / stride_h) * in_w + reach_w / stride_w];
                for (int o = 0; o < OC_TILE; ++o) {
                    acc[o] += value * weight_tile[o * taps + kh * kernel_w + kw];
                }
            }
        }
        __syncthreads();
    }

    if (!active) return;
    for (int o = 0; o < count; ++o) {
        int oc = group * group_out + first + o;
        output[(((long long)n * out_channels + oc) * out_h + oh) * out_w + ow] = acc[o]@PLUS_BIAS@;
    }
}

void launch(const float* input, const float* weight,@BIAS_LAUNCH_PARAMETER@ float* output, int batch, int in_channels,
            int in_h, int in_w, int out_channels, int out_h, int out_w, int kernel_h, int kernel_w, int stride_h,
            int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int groups) {
    int oc_tiles = (out_channels / groups + OC_TILE - 1) / OC_TILE;
    int pixel_tiles = ((out_h + SIDE - 1) / SIDE) * ((out_w + SIDE - 1) / SIDE);
    dim3 block(SIDE, SIDE);
    dim3 grid(pixel_tiles, oc_tiles * groups, batch);
    int shared = OC_TILE * kernel_h * kernel_w * sizeof(float);
    conv_transpose2d_staged<<<grid, block, shared>>>(input, weight,@BIAS_ARGUMENT@ output, in_channels, in_h, in_w,
                                                     out_channels, out_h, out_w, kernel_h, kernel_w, stride_h, stride_w,
                                                     pad_h, pad_w, dilation_h, dilation_w, groups);
}
