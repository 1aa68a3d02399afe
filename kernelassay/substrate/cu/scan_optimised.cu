// @NAME@ along the middle axis of [outer, length, inner]: one block per line. Each warp scans 32
// elements with shuffles, the first warp scans the warps' totals, and a carry joins the tiles.
#define WARP 32
#define BLOCK 256
#define FULL 0xffffffffu

__device__ __forceinline__ float warp_inclusive_scan(float value, int lane) {
    for (int delta = 1; delta < WARP; delta <<= 1) {
        float below = __shfl_up_sync(FULL, value, delta);
        if (lane >= delta) value @OP@= below;
    }
    return value;
}

extern "C" __global__ void @NAME@_block(const float* __restrict__ x, float* __restrict__ y, int length,
                                        long long inner) {
    __shared__ float warp_totals[BLOCK / WARP];
    int lane = threadIdx.x % WARP;
    int warp = threadIdx.x / WARP;
    long long line = blockIdx.x;
    long long offset = line / inner * length * inner + line % inner;

    float carry = @IDENTITY@;
    for (int base = 0; base < length; base += BLOCK) {
        int i = base + threadIdx.x;
        float value = i < length ? x[offset + i * inner] : @IDENTITY@;
        value = warp_inclusive_scan(value, lane);
        if (lane == WARP - 1) warp_totals[warp] = value;
        __syncthreads();
        if (warp == 0) {
            float total = lane < BLOCK / WARP ? warp_totals[lane] : @IDENTITY@;
            total = warp_inclusive_scan(total, lane);
            if (lane < BLOCK / WARP) warp_totals[lane] = total;
        }
        __syncthreads();
        if (warp > 0) value @OP@= warp_totals[warp - 1];
        if (i < length) y[offset + i * inner] = carry @OP@ value;
        carry @OP@= warp_totals[BLOCK / WARP - 1];
        __syncthreads();
    }
}

void launch(const float* x, float* y, long long outer, int length, long long inner) {
    @NAME@_block<<<dim3(outer * inner), dim3(BLOCK)>>>(x, y, length, inner);
}
