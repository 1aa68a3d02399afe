// A grid-stride loop with few blocks.
// problem: suite/relu
// kernelassay: x = arg0
// kernelassay: y = out
// kernelassay: n = x.numel
// kernelassay: relu<<<4, 128>>>(x, y, n)
__global__ void relu(const float* x, float* y, int n) {
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        y[i] = fmaxf(x[i], 0.0f);
    }
}
