// The leaky positive part, slope 0.01 below zero; a thread per element.
// kernelassay: x = arg0
// kernelassay: y = out[x.shape]
// kernelassay: n = x.numel
// kernelassay: leaky_relu_kernel<<<(n + 255) / 256, 256>>>(x, y, n)
#include <cuda_fp16.h>

#ifdef FLOAT16
typedef half scalar;
#else
typedef float scalar;
#endif

__global__ void leaky_relu_kernel(const scalar* __restrict__ x, scalar* __restrict__ y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float v = float(x[i]);
        y[i] = scalar(v > 0.0f ? v : 0.01f * v);
    }
}
