// 2-d convolution: a block computes a rectangle of output pixels for OC_TILE channels of one sample.
// For each input channel it stages the pixels' receptive field and the taps in shared memory.
#define OC_TILE 4

extern "C" __global__ void conv2d_tiled(const float* __restrict__ input, const float* __restrict__ weight,@BIAS_PARAMETER@
                                        float* __restrict__ output, int in_channels, int in_h, int in_w,
                                        int out_channels, int out_h, int out_w, int kernel_h, int kernel_w,
                                        int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h,
                                        int dilation_w, int groups, int tile_h, int tile_w) {
    extern __shared__ float shared[];
    int taps = kernel_h * kernel_w;
    float* weight_tile = shared;                  // [OC_TILE][kernel_h][kernel_w]
    float* input_tile = shared + OC_TILE * taps;  // [tile_h][tile_w]

    int group_in = in_channels / groups;
    int group_out = out_channels / groups;
    int group = blockIdx.y % groups;
    int first = blockIdx.y / groups * OC_TILE;
    int count = min(OC_TILE, group_out - first);
    int oc0 = group * group_out + first;
    int n = blockIdx.z;

    int tiles_x = (out_w + blockDim.x - 1) / blockDim.x;
    int oh0 = blockIdx.x / tiles_x * blockDim.y;
    int ow0 = blockIdx.x % tiles_x * blockDim.x;
    int oh = oh0 + threadIdx.y;
    int ow = ow0 + threadIdx.x;
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
    int threads = blockDim.x * blockDim.y;

    float acc[OC_TILE] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int c = 0; c < group_in; ++c) {
        const float* plane = input + ((long long)n * in_channels + group * group_in + c) * in_h * in_w;
        for (int i = thread; i < tile_h * tile_w; i += threads) {
            int ih = oh0 * stride_h - pad_h + i / tile_w;
            int iw = ow0 * stride_w - pad_w + i % tile_w;
            bool inside = ih >= 0 && ih < in_h && iw >= 0 && iw < in_w;
            input_tile[i] = inside ? plane[(long long)ih * in_w + iw] : 0.0f;
        }
        for (int i = thread; i < OC_TILE * taps; i += threads) {
            int o = i / taps;
            weight_tile[i] = o < count ? weight[((long long)(oc0 + o) * group_in + c) * taps + i % taps] : 0.0f;
        }
        __syncthreads();
        for (int kh = 0; kh < kernel_h; ++kh) {
            int tile_row = threadIdx.y * stride_h + kh * dilation_h;
            for (int kw = 0; kw < kernel_w; ++kw) {
                float value = input_tile[tile_row * tile_w + threadIdx.x * stride_w + kw * dilation_w];
                for (int o = 0; o < OC_TILE; ++o) {
                    acc[o] += value * weight_tile[o * taps + kh * kernel_w + kw];
                }
            }
        }
        __syncthreads();
    }

    if (oh >= out_h || ow >= out_w) return;
    for (int o = 0; o < count; ++o) {
        int oc = oc0 + o;
        output[(((long long)n * out_channels + oc) * out_h + oh) * out_w + ow] = acc[o]@PLUS_BIAS@;
    }
}

void launch(const float* input, const float* weight,@BIAS_LAUNCH_PARAMETER@ float* output, int batch, int in_channels,
            int in_h, int in_w, int out_channels, int out_h, int out_w, int kernel_h, int kernel_w, int stride_h,
            int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int groups) {
    // Large strides get fewer pixels per block, so that the receptive field fits in shared memory.
    int block_h = stride_h <= 4 ? 16 : (stride_h <= 64 ? 64 / stride_h : 1);
    int block_w = stride_w <= 4 ? 16 : (stride_w <= 64 ? 64 / stride_w : 1);
    int tile_h = (block_h - 1) * stride_h + (kernel_h - 1) * dilation_h + 1;
    int tile_w = (block_w - 1) * stride_w + (kernel_w - 1) * dilation_w + 1;
    int oc_tiles = (out_channels / groups + OC_TILE - 1) / OC_TILE;
    int pixel_tiles = ((out_h + block_h - 1) / block_h) * ((out_w + block_w - 1) / block_w);
    dim3 block(block_w, block_h);
    dim3 grid(pixel_tiles, oc_tiles * groups, batch);
    int shared = (OC_TILE * kernel_h * kernel_w + tile_h * tile_w) * sizeof(float);
    conv2d_tiled<<<grid, block, shared>>>(input, weight,@BIAS_ARGUMENT@ output, in_channels, in_h, in_w, out_channels,
                                          out_h, out_w, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w,
                                          dilation_h, dilation_w, groups, tile_h, tile_w);
}
