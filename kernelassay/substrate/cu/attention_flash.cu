// Scaled dot-product attention over tiles: a block takes WARPS query rows of one head, one per warp, and
// walks the keys 32 at a time, one key per lane. A row's running maximum, sum and output are rescaled as
// the maximum grows; queries and keys pass through shared memory 32 components at a time.
#define WARP 32
#define WARPS 8
#define FULL 0xffffffffu

extern "C" __global__ void attention_flash(const float* __restrict__ q, const float* __restrict__ k,
                                           const float* __restrict__ v,@MASK_PARAMETER@ float* __restrict__ y, int queries,
                                           int keys, int width, int value_width) {
    extern __shared__ float acc[];  // [WARPS][value_width]
    __shared__ float q_tile[WARPS][WARP];
    __shared__ float k_tile[WARP][WARP + 1];
    __shared__ float weights[WARPS][WARP];
    int lane = threadIdx.x % WARP;
    int warp = threadIdx.x / WARP;
    int tiles = (queries + WARPS - 1) / WARPS;
    long long head = blockIdx.x / tiles;
    int i = blockIdx.x % tiles * WARPS + warp;
    const float* q_row = q + (head * queries + i) * width;
    const float* k_head = k + head * keys * width;
    const float* v_head = v + head * keys * value_width;
    float* row = acc + warp * value_width;

    for (int d = lane; d < value_width; d += WARP) row[d] = 0.0f;
    float scale = 1.0f / sqrtf((float)width);
    float highest = -INFINITY;
    float sum = 0.0f;
    for (int j0 = 0; j0 < keys; j0 += WARP) {
        int j = j0 + lane;
        float dot = 0.0f;
        for (int d0 = 0; d0 < width; d0 += WARP) {
            int d = d0 + lane;
            __syncthreads();
            q_tile[warp][lane] = i < queries && d < width ? q_row[d] : 0.0f;
            for (int t = warp; t < WARP; t += WARPS) {
                k_tile[t][lane] = j0 + t < keys && d < width ? k_head[(long long)(j0 + t) * width + d] : 0.0f;
            }
            __syncthreads();
            for (int t = 0; t < WARP; ++t) {
                dot += q_tile[warp][t] * k_tile[lane][t];
            }
        }
        float score = -INFINITY;
        if (i < queries && j < keys) {
            score = @SCORE(dot * scale)@;
        }
        float largest = fmaxf(highest, score);
        for (int offset = WARP / 2; offset > 0; offset >>= 1) {
            largest = fmaxf(largest, __shfl_xor_sync(FULL, largest, offset));
        }
        float rescale = highest == -INFINITY ? 0.0f : expf(highest - largest);
        float weight = score == -INFINITY ? 0.0f : expf(score - largest);
        weights[warp][lane] = weight;
        for (int offset = WARP / 2; offset > 0; offset >>= 1) {
            weight += __shfl_xor_sync(FULL, weight, offset);
        }
        sum = sum * rescale + weight;
        highest = largest;
        __syncwarp();
        int count = min(WARP, keys - j0);
        for (int d = lane; d < value_width; d += WARP) {
            float value = row[d] * rescale;
            for (int t = 0; t < count; ++t) {
                value += weights[warp][t] * v_head[(long long)(j0 + t) * value_width + d];
            }
            row[d] = value;
        }
        __syncwarp();
    }
    if (i >= queries) return;
    for (int d = lane; d < value_width; d += WARP) {
        y[(head * queries + i) * value_width + d] = row[d] / sum;
    }
}

void launch(const float* q, const float* k, const float* v,@MASK_LAUNCH_PARAMETER@ float* y, int heads, int queries, int keys,
            int width, int value_width) {
    int tiles = (queries + WARPS - 1) / WARPS;
    int shared = WARPS * value_width * sizeof(float);
    attention_flash<<<dim3(heads * tiles), dim3(WARP * WARPS), shared>>>(q, k, v,@MASK_ARGUMENT@ y, queries, keys, width,
                                                                         value_width);
}
