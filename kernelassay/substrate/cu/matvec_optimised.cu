// y[row] = sum over k of a[row, k] x[k]: one block per row, four elements a load where the rows
// are 16-byte aligned, then warp shuffles and a second shuffle over the warps' partial sums.
#define WARP 32

__device__ __forceinline__ float warp_sum(float value) {
    for (int offset = WARP / 2; offset > 0; offset >>= 1) {
        value += __shfl_down_sync(0xffffffffu, value, offset);
    }
    return value;
}

extern "C" __global__ void matvec_block(const float* __restrict__ a, const float* __restrict__ x,@BIAS_PARAMETER@
                                        float* __restrict__ y, int rows, int cols) {
    __shared__ float partial[WARP];
    int row = blockIdx.x;
    int lane = threadIdx.x % WARP;
    int warp = threadIdx.x / WARP;
    const float* a_row = a + (long long)row * cols;

    float sum = 0.0f;
    if (cols % 4 == 0) {
        const float4* a4 = reinterpret_cast<const float4*>(a_row);
        const float4* x4 = reinterpret_cast<const float4*>(x);
        for (int k = threadIdx.x; k < cols / 4; k += blockDim.x) {
            float4 u = a4[k];
            float4 v = x4[k];
            sum += u.x * v.x + u.y * v.y + u.z * v.z + u.w * v.w;
        }
    } else {
        for (int k = threadIdx.x; k < cols; k += blockDim.x) {
            sum += a_row[k] * x[k];
        }
    }

    sum = warp_sum(sum);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / WARP ? partial[lane] : 0.0f;
        sum = warp_sum(sum);
        if (lane == 0) y[row] = sum@PLUS_BIAS@;
    }
}

void launch(const float* a, const float* x,@BIAS_LAUNCH_PARAMETER@ float* y, int rows, int cols) {
    matvec_block<<<dim3(rows), dim3(256)>>>(a, x,@BIAS_ARGUMENT@ y, rows, cols);
}
