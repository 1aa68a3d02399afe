// The Gaussian error linear unit in its tanh form; a grid-stride loop.
// kernelassay: x = arg0
// kernelassay: y = out[x.shape]
// kernelassay: n = x.numel
// kernelassay: gelu_kernel<<<min((n + 255) / 256, 64), 256>>>(x, y, n)
#include <cuda_fp16.h>

#ifdef FLOAT16
typedef half scalar;
#else
typedef float scalar;
#endif

__device__ float gelu(float v) {
    const float inner = 0.7978845608f * (v + 0.044715f * v * v * v);  // the root of 2 / pi
    return 0.5f * v * (1.0f + tanhf(inner));
}

__global__ void gelu_kernel(const scalar* __restrict__ x, scalar* __restrict__ y, int n) {
    const int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        y[i] = scalar(gelu(float(x[i])));
    }
}
