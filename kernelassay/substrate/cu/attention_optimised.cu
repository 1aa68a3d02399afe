// Scaled dot-product attention, one block per query row of q [heads, queries, width]. Keys arrive in
// tiles of BLOCK; the running maximum, sum and output are rescaled as the maximum grows, so no row of
// scores is ever stored whole.
#define WARP 32
#define BLOCK 128
#define FULL 0xffffffffu

extern "C" __global__ void attention_online(const float* __restrict__ q, const float* __restrict__ k,
                                            const float* __restrict__ v,@MASK_PARAMETER@ float* __restrict__ y, int queries,
                                            int keys, int width, int value_width) {
    extern __shared__ float shared[];
    float* q_row = shared;           // [width]
    float* acc = shared + width;     // [value_width]
    __shared__ float tile[BLOCK];    // scores, then weights, of one tile of keys
    int lane = threadIdx.x % WARP;
    int warp = threadIdx.x / WARP;
    long long row = blockIdx.x;
    long long head = row / queries;
    int i = row % queries;
    const float* k_head = k + head * keys * width;
    const float* v_head = v + head * keys * value_width;

    for (int d = threadIdx.x; d < width; d += BLOCK) q_row[d] = q[row * width + d];
    for (int d = threadIdx.x; d < value_width; d += BLOCK) acc[d] = 0.0f;
    float scale = 1.0f / sqrtf((float)width);
    float highest = -INFINITY;
    float sum = 0.0f;
    for (int j0 = 0; j0 < keys; j0 += BLOCK) {
        int count = min(BLOCK, keys - j0);
        __syncthreads();
        for (int t = warp; t < count; t += BLOCK / WARP) {
            int j = j0 + t;
            float dot = 0.0f;
            for (int d = lane; d < width; d += WARP) {
                dot += q_row[d] * k_head[(long long)j * width + d];
            }
            for (int offset = WARP / 2; offset > 0; offset >>= 1) {
                dot += __shfl_down_sync(FULL, dot, offset);
            }
            if (lane == 0) {
                float score = @SCORE(dot * scale)@;
                tile[t] = score;
            }
        }
        __syncthreads();
        float previous = highest;
        for (int t = 0; t < count; ++t) {
            highest = fmaxf(highest, tile[t]);
        }
        float rescale = previous == -INFINITY ? 0.0f : expf(previous - highest);
        __syncthreads();
        if (threadIdx.x < count) {
            float score = tile[threadIdx.x];
            tile[threadIdx.x] = score == -INFINITY ? 0.0f : expf(score - highest);
        }
        __syncthreads();
        sum *= rescale;
        for (int t = 0; t < count; ++t) {
            sum += tile[t];
        }
        for (int d = threadIdx.x; d < value_width; d += BLOCK) {
            float value = acc[d] * rescale;
            for (int t = 0; t < count; ++t) {
                value += tile[t] * v_head[(long long)(j0 + t) * value_width + d];
            }
            acc[d] = value;
        }
    }
    for (int d = threadIdx.x; d < value_width; d += BLOCK) {
        y[row * value_width + d] = acc[d] / sum;
    }
}

void launch(const float* q, const float* k, const float* v,@MASK_LAUNCH_PARAMETER@ float* y, int heads, int queries, int keys,
            int width, int value_width) {
    int shared = (width + value_width) * sizeof(float);
    attention_online<<<dim3(heads * queries), dim3(BLOCK), shared>>>(q, k, v,@MASK_ARGUMENT@ y, queries, keys, width,
                                                                     value_width);
}
