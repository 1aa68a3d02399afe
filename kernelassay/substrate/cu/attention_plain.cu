// Scaled dot-product attention over heads of q [heads, queries, width], k [heads, keys, width] and
// v [heads, keys, value_width]: scores, softmax over each row of scores, weighted sum of values.
extern "C" __global__ void attention_scores(const float* __restrict__ q, const float* __restrict__ k,@MASK_PARAMETER@
                                            float* __restrict__ scores, int heads, int queries, int keys, int width) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)heads * queries * keys) return;
    int j = index % keys;
    int i = index / keys % queries;
    long long head = index / keys / queries;
    const float* q_row = q + (head * queries + i) * width;
    const float* k_row = k + (head * keys + j) * width;
    float dot = 0.0f;
    for (int d = 0; d < width; ++d) {
        dot += q_row[d] * k_row[d];
    }
    float score = @SCORE(dot / sqrtf((float)width))@;
    scores[index] = score;
}

extern "C" __global__ void attention_softmax(float* __restrict__ scores, long long rows, int keys) {
    long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float* s = scores + row * keys;
    float highest = -INFINITY;
    for (int j = 0; j < keys; ++j) {
        highest = fmaxf(highest, s[j]);
    }
    float sum = 0.0f;
    for (int j = 0; j < keys; ++j) {
        s[j] = expf(s[j] - highest);
        sum += s[j];
    }
    for (int j = 0; j < keys; ++j) {
        s[j] /= sum;
    }
}

extern "C" __global__ void attention_values(const float* __restrict__ weights, const float* __restrict__ v,
                                            float* __restrict__ y, int heads, int queries, int keys,
                                            int value_width) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)heads * queries * value_width) return;
    int d = index % value_width;
    long long row = index / value_width;
    long long head = row / queries;
    float sum = 0.0f;
    for (int j = 0; j < keys; ++j) {
        sum += weights[row * keys + j] * v[(head * keys + j) * value_width + d];
    }
    y[index] = sum;
}

void launch(const float* q, const float* k, const float* v,@MASK_LAUNCH_PARAMETER@ float* y, int heads, int queries, int keys,
            int width, int value_width) {
    long long rows = (long long)heads * queries;
    float* scores;
    cudaMalloc(&scores, rows * keys * sizeof(float));
    attention_scores<<<dim3((rows * keys + 255) / 256), dim3(256)>>>(q, k,@MASK_ARGUMENT@ scores, heads, queries, keys, width);
    attention_softmax<<<dim3((rows + 127) / 128), dim3(128)>>>(scores, rows, keys);
    attention_values<<<dim3((rows * value_width + 255) / 256), dim3(256)>>>(scores, v, y, heads, queries, keys,
                                                                          value_width);
}
