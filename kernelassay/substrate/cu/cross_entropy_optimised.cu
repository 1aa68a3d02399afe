// Mean cross entropy of logits [rows, classes] against class indices: one warp per row takes the row's
// maximum and sum of exponentials by shuffles; one block then averages the rows that count.
#define WARP 32
#define WARPS 4
#define BLOCK 256
#define FULL 0xffffffffu

extern "C" __global__ void cross_entropy_warp(const float* __restrict__ logits, const long long* __restrict__ target,
                                              float* __restrict__ losses, int rows, int classes,
                                              long long ignore_index) {
    int lane = threadIdx.x % WARP;
    int row = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= rows) return;
    const float* x = logits + (long long)row * classes;

    float highest = -INFINITY;
    for (int c = lane; c < classes; c += WARP) {
        highest = fmaxf(highest, x[c]);
    }
    for (int offset = WARP / 2; offset > 0; offset >>= 1) {
        highest = fmaxf(highest, __shfl_xor_sync(FULL, highest, offset));
    }
    float sum = 0.0f;
    for (int c = lane; c < classes; c += WARP) {
        sum += expf(x[c] - highest);
    }
    for (int offset = WARP / 2; offset > 0; offset >>= 1) {
        sum += __shfl_xor_sync(FULL, sum, offset);
    }
    if (lane == 0) {
        long long label = target[row];
        losses[row] = label != ignore_index ? logf(sum) + highest - x[label] : 0.0f;
    }
}

extern "C" __global__ void average_block(const float* __restrict__ losses, const long long* __restrict__ target,
                                         float* __restrict__ y, int rows, long long ignore_index) {
    __shared__ float sums[BLOCK];
    __shared__ int counts[BLOCK];
    float sum = 0.0f;
    int count = 0;
    for (int row = threadIdx.x; row < rows; row += BLOCK) {
        sum += losses[row];
        if (target[row] != ignore_index) ++count;
    }
    sums[threadIdx.x] = sum;
    counts[threadIdx.x] = count;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half >>= 1) {
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
            counts[threadIdx.x] += counts[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) y[0] = sums[0] / counts[0];
}

void launch(const float* logits, const long long* target, float* y, int rows, int classes, long long ignore_index) {
    float* losses;
    cudaMalloc(&losses, rows * sizeof(float));
    dim3 grid((rows + WARPS - 1) / WARPS);
    cross_entropy_warp<<<grid, dim3(WARP * WARPS)>>>(logits, target, losses, rows, classes, ignore_index);
    average_block<<<dim3(1), dim3(BLOCK)>>>(losses, target, y, rows, ignore_index);
}
