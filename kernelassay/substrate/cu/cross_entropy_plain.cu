// Mean cross entropy of logits [rows, classes] against class indices; rows whose target is
// ignore_index count neither in the sum nor in the mean.
extern "C" __global__ void cross_entropy_rows(const float* __restrict__ logits, const long long* __restrict__ target,
                                              float* __restrict__ losses, int rows, int classes,
                                              long long ignore_index) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* x = logits + (long long)row * classes;
    float highest = -INFINITY;
    for (int c = 0; c < classes; ++c) {
        highest = fmaxf(highest, x[c]);
    }
    float sum = 0.0f;
    for (int c = 0; c < classes; ++c) {
        sum += expf(x[c] - highest);
    }
    float loss = 0.0f;
    if (target[row] != ignore_index) {
        loss = logf(sum) + highest - x[target[row]];
    }
    losses[row] = loss;
}

extern "C" __global__ void average_rows(const float* __restrict__ losses, const long long* __restrict__ target,
                                        float* __restrict__ y, int rows, long long ignore_index) {
    float sum = 0.0f;
    int count = 0;
    for (int row = 0; row < rows; ++row) {
        sum += losses[row];
        if (target[row] != ignore_index) ++count;
    }
    y[0] = sum / count;
}

void launch(const float* logits, const long long* target, float* y, int rows, int classes, long long ignore_index) {
    float* losses;
    cudaMalloc(&losses, rows * sizeof(float));
    cross_entropy_rows<<<dim3((rows + 127) / 128), dim3(128)>>>(logits, target, losses, rows, classes, ignore_index);
    average_rows<<<dim3(1), dim3(1)>>>(losses, target, y, rows, ignore_index);
}
