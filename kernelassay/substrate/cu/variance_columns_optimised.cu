// x is [outer, length, inner], reduced over length. A block takes 32 neighbouring columns and splits
// length over 8 rows of threads; each thread runs Welford's update, and the rows merge in shared memory.
#define TILE_X 32
#define TILE_Y 8

extern "C" __global__ void variance_columns(const float* __restrict__ x, float* __restrict__ y, long long outer, long long length, long long inner) {
    __shared__ float counts[TILE_Y][TILE_X];
    __shared__ float means[TILE_Y][TILE_X];
    __shared__ float squares[TILE_Y][TILE_X];
    const long long tiles = (inner + TILE_X - 1) / TILE_X;
    const long long o = blockIdx.x / tiles;
    const long long column = blockIdx.x % tiles * TILE_X + threadIdx.x;
    float count = 0.0f;
    float mean = 0.0f;
    float m2 = 0.0f;
    if (column < inner) {
        for (long long k = threadIdx.y; k < length; k += TILE_Y) {
            const float v = x[(o * length + k) * inner + column];
            count += 1.0f;
            const float delta = v - mean;
            mean += delta / count;
            m2 += delta * (v - mean);
        }
    }
    counts[threadIdx.y][threadIdx.x] = count;
    means[threadIdx.y][threadIdx.x] = mean;
    squares[threadIdx.y][threadIdx.x] = m2;
    __syncthreads();
    if (threadIdx.y != 0 || column >= inner) return;
    for (int row = 1; row < TILE_Y; ++row) {
        const float other = counts[row][threadIdx.x];
        if (other == 0.0f) break;
        const float delta = means[row][threadIdx.x] - mean;
        const float total = count + other;
        mean += delta * other / total;
        m2 += squares[row][threadIdx.x] + delta * delta * count * other / total;
        count = total;
    }
    y[o * inner + column] = m2 / (length - @CORRECTION@);
}

void launch(const float* x, float* y, long long outer, long long length, long long inner) {
    const long long tiles = (inner + 31) / 32;
    variance_columns<<<dim3(outer * tiles), dim3(32, 8)>>>(x, y, outer, length, inner);
}
