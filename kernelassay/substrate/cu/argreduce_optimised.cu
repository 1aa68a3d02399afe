// @NAME@ over the middle axis of [outer, length, inner]: one warp per line. Lanes stride over the
// line, then combine (value, index) pairs by shuffles; of equal values the lower index wins.
#define WARP 32
#define WARPS 4
#define FULL 0xffffffffu

extern "C" __global__ void @NAME@_warp(const float* __restrict__ x,@VALUES_PARAMETER@ long long* __restrict__ indices,
                                       long long outer, int length, long long inner) {
    int lane = threadIdx.x % WARP;
    long long line = (long long)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (line >= outer * inner) return;
    const float* first = x + line / inner * length * inner + line % inner;

    float best = @WORST@;
    int where = length;
    for (int i = lane; i < length; i += WARP) {
        float value = first[i * inner];
        if (where == length || value @BETTER@ best) {
            best = value;
            where = i;
        }
    }
    for (int offset = WARP / 2; offset > 0; offset >>= 1) {
        float other = __shfl_down_sync(FULL, best, offset);
        int other_where = __shfl_down_sync(FULL, where, offset);
        if (other @BETTER@ best || (other == best && other_where < where)) {
            best = other;
            where = other_where;
        }
    }
    if (lane != 0) return;
    indices[line] = where;@STORE_VALUES@
}

void launch(const float* x,@VALUES_LAUNCH_PARAMETER@ long long* indices, long long outer, int length, long long inner) {
    long long blocks = (outer * inner + WARPS - 1) / WARPS;
    @NAME@_warp<<<dim3(blocks), dim3(WARP * WARPS)>>>(x,@VALUES_ARGUMENT@ indices, outer, length, inner);
}
