// x is [outer, length, inner], reduced over length. A block takes 32 neighbouring columns, so that
// its loads coalesce, and splits length over its 8 rows of threads, which combine in shared memory.
#define TILE_X 32
#define TILE_Y 8

extern "C" __global__ void reduce_columns(const @IN@* __restrict__ x, @OUT@* __restrict__ y, long long outer, long long length, long long inner) {
    __shared__ @ACC@ partial[TILE_Y][TILE_X];
    const long long tiles = (inner + TILE_X - 1) / TILE_X;
    const long long o = blockIdx.x / tiles;
    const long long column = blockIdx.x % tiles * TILE_X + threadIdx.x;
    @ACC@ acc = @IDENTITY@;
    if (column < inner) {
        for (long long k = threadIdx.y; k < length; k += TILE_Y) {
            const @ACC@ v = x[(o * length + k) * inner + column];
            acc = @COMBINE(acc, @MAP(v)@)@;
        }
    }
    partial[threadIdx.y][threadIdx.x] = acc;
    __syncthreads();
    for (int step = TILE_Y / 2; step > 0; step /= 2) {
        if (threadIdx.y < step) {
            const @ACC@ other = partial[threadIdx.y + step][threadIdx.x];
            acc = @COMBINE(acc, other)@;
            partial[threadIdx.y][threadIdx.x] = acc;
        }
        __syncthreads();
    }
    if (threadIdx.y == 0 && column < inner) y[o * inner + column] = @FINISH(acc, length)@;
}

void launch(const @IN@* x, @OUT@* y, long long outer, long long length, long long inner) {
    const long long tiles = (inner + 31) / 32;
    reduce_columns<<<dim3(outer * tiles), dim3(32, 8)>>>(x, y, outer, length, inner);
}
