// The last, incomplete block of threads is never launched.
// problem: suite/relu
// caught by: poisoned memory
// kernelassay: x = arg0
// kernelassay: y = out
// kernelassay: n = x.numel
// kernelassay: relu<<<n / 128, 128>>>(x, y, n)
__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
