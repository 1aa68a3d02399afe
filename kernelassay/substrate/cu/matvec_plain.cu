// y[row] = sum over k of a[row, k] x[k]: one thread per row.
extern "C" __global__ void matvec(const float* __restrict__ a, const float* __restrict__ x,@bias_parameter@
                                  float* __restrict__ y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = 0; k < cols; ++k) {
        sum += a[@a_element@] * x[k];
    }
    y[row] = sum@plus_bias@;
}

void launch(const float* a, const float* x,@bias_launch_parameter@ float* y, int rows, int cols) {
    matvec<<<dim3((rows + 127) / 128), dim3(128)>>>(a, x,@bias_argument@ y, rows, cols);
}
