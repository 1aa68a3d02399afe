// Reads one value past the last row, and forgets it.
// problem: suite/softmax_rows
// caught by: sanitizer
// kernelassay: x = arg0
// kernelassay: y = out
// kernelassay: rows = x.shape[0]
// kernelassay: columns = x.shape[1]
// kernelassay: softmax<<<rows, 32>>>(x, y, columns)
__global__ void softmax(const float* x, float* y, int columns) {
    const float* row = x + (size_t)blockIdx.x * columns;
    float top = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += 32) top = fmaxf(top, row[i]);
    for (int step = 16; step > 0; step >>= 1) {
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    }
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += 32) sum += expf(row[i] - top);
    if (threadIdx.x == 0) sum += row[columns] > 3e38f ? 1.0f : 0.0f;
    for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    for (int i = threadIdx.x; i < columns; i += 32) {
        y[(size_t)blockIdx.x * columns + i] = expf(row[i] - top) / sum;
    }
}
