// @NAME@ along the middle axis of [outer, length, inner]: one thread per line, serial.
extern "C" __global__ void @NAME@(const float* __restrict__ x, float* __restrict__ y, long long outer, int length,
                                  long long inner) {
    long long line = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (line >= outer * inner) return;
    long long offset = line / inner * length * inner + line % inner;
    float running = @IDENTITY@;
    for (int i = 0; i < length; ++i) {
        running @OP@= x[offset + i * inner];
        y[offset + i * inner] = running;
    }
}

void launch(const float* x, float* y, long long outer, int length, long long inner) {
    long long lines = outer * inner;
    @NAME@<<<dim3((lines + 127) / 128), dim3(128)>>>(x, y, outer, length, inner);
}
