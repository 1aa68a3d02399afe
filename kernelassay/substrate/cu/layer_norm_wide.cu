// One block per row; one pass for the sums of the elements and of their squares, both in double.
@BLOCK_SUM_WIDE@
extern "C" __global__ void layer_norm(const float* __restrict__ x, @AFFINE_POINTERS@float* __restrict__ y, long long rows, long long cols) {
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
    const double centre = sum / cols;
    const float mean = centre;
    const float variance = squares / cols - centre * centre;
    const float scale = rsqrtf(variance + @EPS@);
    for (long long i = threadIdx.x; i < cols; i += blockDim.x) {
        const float v = (row[i] - mean) * scale;
        y[blockIdx.x * cols + i] = @AFFINE(v, i)@;
    }
}

void launch(const float* x, @AFFINE_HOST@float* y, long long rows, long long cols) {
    int threads = 256;
    if (cols < 256) threads = 64;
    layer_norm<<<dim3(rows), dim3(threads)>>>(x, @AFFINE_ARGUMENTS@y, rows, cols);
}
