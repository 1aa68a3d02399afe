// @name@ over the middle axis of [outer, length, inner]: one warp per line. Lanes stride over the
// line, then combine (value, index) pairs by shuffles; of equal values the lower index wins.
#define WARP 32
#define WARPS 4
#define FULL 0xffffffffu

extern "C" __global__ void @name@_warp(const float* __restrict__ x,@values_parameter@ long long* __restrict__ indices,
                                       long long outer, int length, long long inner) {
    int lane = threadIdx.x % WARP;
    long long line = (long long)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (line >= outer * inner) return;
    const float* first = x + line / inner * length * inner + line % inner;

    float best = @worst@;
    int where = length;
    for (int i = lane; i < length; i += WARP) {
        float value = first[i * inner];
        if (where == length || value @better@ best) {
            best = value;
            where = i;
        }
    }
    for (int offset = WARP / 2; offset > 0; offset >>= 1) {
        float other = __shfl_down_sync(FULL, best, offset);
        int other_where = __shfl_down_sync(FULL, where, offset);
        if (other @better@ best || (other == best && other_where < where)) {
            best = other;
            where = other_where;
        }
    }
    if (lane == 0) {
    @store_values@        indices[line] = where;
    }
}

void launch(const float* x,@values_launch_parameter@ long long* indices, long long outer, int length, long long inner) {
    long long blocks = (outer * inner + WARPS - 1) / WARPS;
    @name@_warp<<<dim3(blocks), dim3(WARP * WARPS)>>>(x,@values_argument@ indices, outer, length, inner);
}
