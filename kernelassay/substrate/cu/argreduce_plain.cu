// @NAME@ over the middle axis of [outer, length, inner], the first of equal elements wins: one
// thread per line.
extern "C" __global__ void @NAME@(const float* __restrict__ x,@VALUES_PARAMETER@ long long* __restrict__ indices,
                                  long long outer, int length, long long inner) {
    long long line = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (line >= outer * inner) return;
    const float* first = x + line / inner * length * inner + line % inner;
    float best = first[0];
    int where = 0;
    for (int i = 1; i < length; ++i) {
        float value = first[i * inner];
        if (value @BETTER@ best) {
            best = value;
            where = i;
        }
    }
    indices[line] = where;@STORE_VALUES@
}

void launch(const float* x,@VALUES_LAUNCH_PARAMETER@ long long* indices, long long outer, int length, long long inner) {
    long long lines = outer * inner;
    @NAME@<<<dim3((lines + 127) / 128), dim3(128)>>>(x,@VALUES_ARGUMENT@ indices, outer, length, inner);
}
