// x is [outer, length, inner], normalised over length. A block takes 32 neighbouring columns, so that
// its loads coalesce, and splits length over its 8 rows of threads, which combine in shared memory.
#define TILE_X 32
#define TILE_Y 8

extern "C" __global__ void softmax_columns(const float* __restrict__ x, float* __restrict__ y, long long outer, long long length, long long inner) {
    __shared__ float partial[TILE_Y][TILE_X];
    const long long tiles = (inner + TILE_X - 1) / TILE_X;
    const long long column = blockIdx.x % tiles * TILE_X + threadIdx.x;
    const long long base = blockIdx.x / tiles * length * inner + column;
    const bool inside = column < inner;

    float largest = -INFINITY;
    for (long long k = threadIdx.y; inside && k < length; k += TILE_Y) largest = fmaxf(largest, x[base + k * inner]);
    partial[threadIdx.y][threadIdx.x] = largest;
    __syncthreads();
    for (int row = 0; row < TILE_Y; ++row) largest = fmaxf(largest, partial[row][threadIdx.x]);
    __syncthreads();

    float share = 0.0f;
    for (long long k = threadIdx.y; inside && k < length; k += TILE_Y) share += expf(x[base + k * inner] - largest);
    partial[threadIdx.y][threadIdx.x] = share;
    __syncthreads();
    float total = 0.0f;
    for (int row = 0; row < TILE_Y; ++row) total += partial[row][threadIdx.x];

    for (long long k = threadIdx.y; inside && k < length; k += TILE_Y) {
        const float v = x[base + k * inner];
        y[base + k * inner] = @RESULT(v)@;
    }
}

void launch(const float* x, float* y, long long outer, long long length, long long inner) {
    const long long tiles = (inner + 31) / 32;
    softmax_columns<<<dim3(outer * tiles), dim3(32, 8)>>>(x, y, outer, length, inner);
}
