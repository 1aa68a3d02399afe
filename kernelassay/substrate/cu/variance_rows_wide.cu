// One block per row, in one pass: the sums of the elements and of their squares, both in double.
@BLOCK_SUM_WIDE@
extern "C" __global__ void variance_rows(const float* __restrict__ x, float* __restrict__ y, long long rows, long long cols) {
    const float* row = x + blockIdx.x * cols;
    double sum = 0.0;
    double squares = 0.0;
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) {
        const double v = row[i];
        sum += v;
        squares += v * v;
    }
    sum = block_sum(sum);
    __syncthreads();
    squares = block_sum(squares);
    const double mean = sum / cols;
    if (threadIdx.x == 0) y[blockIdx.x] = (squares - cols * mean * mean) / (cols - @CORRECTION@);
}

void launch(const float* x, float* y, long long rows, long long cols) {
    int threads = 256;
    if (cols < 256) threads = 64;
    variance_rows<<<dim3(rows), dim3(threads)>>>(x, y, rows, cols);
}
