// @name@ over the middle axis of [outer, length, inner]: one block per line, halving tree in shared
// memory.
#define BLOCK 128

extern "C" __global__ void @name@_tree(const float* __restrict__ x, float* __restrict__ y, int length,
                                       long long inner) {
    __shared__ float partial[BLOCK];
    long long line = blockIdx.x;
    const float* first = x + line / inner * length * inner + line % inner;

    float best = @worst@;
    for (int i = threadIdx.x; i < length; i += BLOCK) {
        best = @pick@(best, first[i * inner]);
    }
    partial[threadIdx.x] = best;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half >>= 1) {
        if (threadIdx.x < half) {
            partial[threadIdx.x] = @pick@(partial[threadIdx.x], partial[threadIdx.x + half]);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) y[line] = partial[0];
}

void launch(const float* x, float* y, long long outer, int length, long long inner) {
    @name@_tree<<<dim3(outer * inner), dim3(BLOCK)>>>(x, y, length, inner);
}
