// @DIMS@-d convolution as a matrix product that is never stored: weights [channels, depth] times the patches
// [depth, pixels] of one group, where depth runs over input channels and taps. A block computes a 16 x 16
// tile from two pairs of shared-memory tiles: while one is multiplied, the next elements are on their way.
#define TILE 16

extern "C" __global__ void conv@DIMS@d_gemm(const float* __restrict__ input, const float* __restrict__ weight,@BIAS_PARAMETER@
                                      float* __restrict__ output, @PARAMETERS@) {
    __shared__ float tile_w[2][TILE][TILE + 1];
    __shared__ float tile_x[2][TILE][TILE + 1];
    int group_in = in_channels / groups;
    int group_out = out_channels / groups;
    int taps = @TAPS@;
    int depth = group_in * taps;
    int group = blockIdx.y % groups;
    int channel = blockIdx.y / groups * TILE + threadIdx.y;
    int oc = group * group_out + channel;

    int plane = @OUT_PLANE@;
    long long pixel = (long long)blockIdx.x * TILE + threadIdx.x;
    bool active = pixel < (long long)batch * plane;
    int n = pixel / plane;
    int within = pixel % plane;
@ORIGIN@
    const float* image = input + ((long long)n * in_channels + group * group_in) * @IN_PLANE@;
    const float* filter = weight + (long long)oc * depth;

    float sum = 0.0f;
    int buffer = 0;
    for (int k0 = -TILE; k0 < depth; k0 += TILE) {
        float next_w = 0.0f;
        float next_x = 0.0f;
        int kw = k0 + TILE + threadIdx.x;
        if (channel < group_out && kw < depth) next_w = filter[kw];
        int kx = k0 + TILE + threadIdx.y;
        if (active && kx < depth) {
            int c = kx / taps;
            int tap = kx % taps;
@POSITION@
            if (@INSIDE@) next_x = image[@ELEMENT@];
        }
        if (k0 >= 0) {
            for (int k = 0; k < TILE; ++k) {
                sum += tile_w[buffer][threadIdx.y][k] * tile_x[buffer][k][threadIdx.x];
            }
        }
        buffer ^= 1;
        tile_w[buffer][threadIdx.y][threadIdx.x] = next_w;
        tile_x[buffer][threadIdx.y][threadIdx.x] = next_x;
        __syncthreads();
    }

    if (channel < group_out && active) {
        output[((long long)n * out_channels + oc) * plane + within] = sum@PLUS_BIAS@;
    }
}

void launch(const float* input, const float* weight,@BIAS_LAUNCH_PARAMETER@ float* output, @PARAMETERS@) {
    long long pixels = (long long)batch * @OUT_PLANE@;
    int channel_tiles = (out_channels / groups + TILE - 1) / TILE;
    dim3 block(TILE, TILE);
    dim3 grid((pixels + TILE - 1) / TILE, channel_tiles * groups);
    conv@DIMS@d_gemm<<<grid, block>>>(input, weight,@BIAS_ARGUMENT@ output, @ARGUMENTS@);
}
