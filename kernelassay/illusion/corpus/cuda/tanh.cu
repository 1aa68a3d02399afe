// The hyperbolic tangent; a grid-stride loop.
// kernelassay: x = arg0
// kernelassay: y = out[x.shape]
// kernelassay: n = x.numel
// kernelassay: tanh_kernel<<<min((n + 255) / 256, 64), 256>>>(x, y, n)
#include <cuda_fp16.h>

#ifdef FLOAT16
typedef half scalar;
#else
typedef float scalar;
#endif

__global__ void tanh_kernel(const scalar* __restrict__ x, scalar* __restrict__ y, int n) {
    const int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const float v = float(x[i]);
        y[i] = scalar(tanhf(v));
    }
}
