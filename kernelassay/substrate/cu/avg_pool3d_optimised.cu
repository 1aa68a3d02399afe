// 3-d average pooling: a grid-stride loop in which one warp owns one output row. The lanes walk the
// input columns the row's windows cover, so that the loads of the depth-height sums are coalesced.
#define WARP 32
#define WARPS 4

extern "C" __global__ void avg_pool3d_rows(const float* __restrict__ x, float* __restrict__ y, long long rows, int in_d,
                                           int in_h, int in_w, int out_d, int out_h, int out_w, int kernel_d,
                                           int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w,
                                           int pad_d, int pad_h, int pad_w, bool count_include_pad) {
    extern __shared__ float sums[];
    int lane = threadIdx.x;
    int columns = (WARP - 1) * stride_w + kernel_w;
    float* column_sums = sums + threadIdx.y * columns;

    for (long long row = (long long)blockIdx.x * WARPS + threadIdx.y; row < rows; row += (long long)gridDim.x * WARPS) {
        int d_start = row / out_h % out_d * stride_d - pad_d;
        int h_start = row % out_h * stride_h - pad_h;
        int d_end = min(d_start + kernel_d, in_d + pad_d);
        int h_end = min(h_start + kernel_h, in_h + pad_h);
        const float* volume = x + row / out_h / out_d * in_d * in_h * in_w;

        for (int ow0 = 0; ow0 < out_w; ow0 += WARP) {
            for (int i = lane; i < columns; i += WARP) {
                int iw = ow0 * stride_w - pad_w + i;
                float sum = 0.0f;
                if (iw >= 0 && iw < in_w) {
                    for (int id = max(d_start, 0); id < min(d_end, in_d); ++id) {
                        for (int ih = max(h_start, 0); ih < min(h_end, in_h); ++ih) {
                            sum += volume[((long long)id * in_h + ih) * in_w + iw];
                        }
                    }
                }
                column_sums[i] = sum;
            }
            __syncwarp();
            int ow = ow0 + lane;
            if (ow < out_w) {
                float sum = 0.0f;
                for (int kw = 0; kw < kernel_w; ++kw) {
                    sum += column_sums[lane * stride_w + kw];
                }
                int w_start = ow * stride_w - pad_w;
                int w_end = min(w_start + kernel_w, in_w + pad_w);
                int divisor = (d_end - d_start) * (h_end - h_start) * (w_end - w_start);
                if (!count_include_pad) {
                    divisor = (min(d_end, in_d) - max(d_start, 0)) * (min(h_end, in_h) - max(h_start, 0)) *
                              (min(w_end, in_w) - max(w_start, 0));
                }
                y[row * out_w + ow] = sum / divisor;
            }
            __syncwarp();
        }
    }
}

void launch(const float* x, float* y, int planes, int in_d, int in_h, int in_w, int out_d, int out_h, int out_w,
            int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h,
            int pad_w, bool count_include_pad, int max_blocks) {
    long long rows = (long long)planes * out_d * out_h;
    long long blocks = (rows + WARPS - 1) / WARPS;
    dim3 block(WARP, WARPS);
    dim3 grid(blocks < max_blocks ? blocks : max_blocks);
    int shared = WARPS * ((WARP - 1) * stride_w + kernel_w) * sizeof(float);
    avg_pool3d_rows<<<grid, block, shared>>>(x, y, rows, in_d, in_h, in_w, out_d, out_h, out_w, kernel_d, kernel_h,
                                             kernel_w, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w,
                                             count_include_pad);
}
