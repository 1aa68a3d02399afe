// Mean cross entropy of logits [rows, classes] against class indices, in one kernel: one warp per row takes
// the row's maximum and sum of exponentials; an integer atomic counts the rows that matter, and the block
// that draws the last ticket averages them, in their order.
#define WARP 32
#define WARPS 4
#define FULL 0xffffffffu
@BLOCK_SUM@
extern "C" __global__ void cross_entropy_split(const float* __restrict__ logits, const long long* __restrict__ target,
                                               volatile float* losses, int* counts, unsigned int* ticket,
                                               float* __restrict__ y, int rows, int classes, long long ignore_index) {
    __shared__ bool last;
    int lane = threadIdx.x % WARP;
    int row = blockIdx.x * WARPS + threadIdx.x / WARP;
    const float* x = logits + (long long)row * classes;

    if (row < rows) {
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
            bool counted = label != ignore_index;
            losses[row] = counted ? logf(sum) + highest - x[label] : 0.0f;
            if (counted) atomicAdd(counts, 1);
            __threadfence();
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    float loss = 0.0f;
    for (int i = threadIdx.x; i < rows; i += blockDim.x) {
        loss += losses[i];
    }
    loss = block_sum(loss);
    if (threadIdx.x == 0) y[0] = loss / atomicAdd(counts, 0);
}

void launch(const float* logits, const long long* target, float* y, int rows, int classes, long long ignore_index) {
    int blocks = (rows + WARPS - 1) / WARPS;
    float* losses;
    int* counts;
    unsigned int* ticket;
    cudaMalloc(&losses, rows * sizeof(float));
    cudaMalloc(&counts, sizeof(int));
    cudaMalloc(&ticket, sizeof(unsigned int));
    cudaMemset(counts, 0, sizeof(int));
    cudaMemset(ticket, 0, sizeof(unsigned int));
    cross_entropy_split<<<dim3(blocks), dim3(WARP * WARPS)>>>(logits, target, losses, counts, ticket, y, rows, classes, ignore_index);
}
