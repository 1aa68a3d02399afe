// x is [outer, length, inner], reduced over length. A block takes 32 neighbouring columns and splits
// length over its rows of threads, which fold in shared memory, as many as there are.
#define TILE_X 32
#define TILE_Y 6

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
    int count = min(length, (long long)TILE_Y);
    while (count > 1) {
        const int kept = (count + 1) / 2;
        if (threadIdx.y + kept < count) {
            const @ACC@ other = partial[threadIdx.y + kept][threadIdx.x];
            acc = @COMBINE(acc, other)@;
            partial[threadIdx.y][threadIdx.x] = acc;
        }
        __syncthreads();
        count = kept;
    }
    if (threadIdx.y == 0 && column < inner) y[o * inner + column] = @FINISH(acc, length)@;
}

void launch(const @IN@* x, @OUT@* y, long long outer, long long length, long long inner) {
    const long long tiles = (inner + TILE_X - 1) / TILE_X;
    reduce_columns<<<dim3(outer * tiles), dim3(TILE_X, TILE_Y)>>>(x, y, outer, length, inner);
}
