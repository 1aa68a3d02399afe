// y[row] = sum over k of a[row, k] x[k]: one thread per row.
extern "C" __global__ void matvec(const float* __restrict__ a, const float* __restrict__ x,@BIAS_PARAMETER@
                                  float* __restrict__ y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = 0; k < cols; ++k) {
        sum += a[(long long)row * cols + k] * x[k];
    }
    y[row] = sum@PLUS_BIAS@;
}

void launch(const float* a, const float* x,@BIAS_LAUNCH_PARAMETER@ float* y, int rows, int cols) {
    matvec<<<dim3((rows + 127) / 128), dim3(128)>>>(a, x,@BIAS_ARGUMENT@ y, rows, cols);
}
