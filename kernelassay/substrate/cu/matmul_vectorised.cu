// c[M, N] = a[M, K] b[K, N]@EACH@: a block computes a 32 x 32 tile of c, 1 x 4 outputs per thread. Both
// operands are read four elements at a time along the direction they are stored in, with single loads
// where a line is not a multiple of four long.
#define TILE 32
#define TILE_K 16
#define THREADS 256

// Four neighbours of one line of a matrix stored as [lines, length]; zero past its edges.
__device__ __forceinline__ float4 load4(const float* __restrict__ matrix, int line, int at, int lines, int length) {
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (line >= lines || at >= length) return v;
    const float* first = matrix + (long long)line * length + at;
    if (length % 4 == 0) {
        v = *reinterpret_cast<const float4*>(first);
    } else {
        v.x = first[0];
        if (at + 1 < length) v.y = first[1];
        if (at + 2 < length) v.z = first[2];
        if (at + 3 < length) v.w = first[3];
    }
    return v;
}

__device__ void multiply(const float* __restrict__ a, const float* __restrict__ b,@BIAS_PARAMETER@
                         float* __restrict__ c, int M, int N, int K) {
    __shared__ float tile_a[TILE_K][TILE + 4];
    __shared__ float tile_b[TILE_K][TILE + 4];
    int thread = threadIdx.x;
    int row0 = blockIdx.y * TILE;
    int col0 = blockIdx.x * TILE;
    int r = thread / (TILE / 4);
    int first = thread % (TILE / 4) * 4;

    float acc0 = 0.0f, acc1 = 0.0f, acc2 = 0.0f, acc3 = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE_K) {
        for (int i = thread; i < TILE * TILE_K / 4; i += THREADS) {
@LOAD_A@
        }
        for (int i = thread; i < TILE * TILE_K / 4; i += THREADS) {
@LOAD_B@
        }
        __syncthreads();
        for (int k = 0; k < TILE_K; ++k) {
            float value = tile_a[k][r];
            acc0 += value * tile_b[k][first];
            acc1 += value * tile_b[k][first + 1];
            acc2 += value * tile_b[k][first + 2];
            acc3 += value * tile_b[k][first + 3];
        }
        __syncthreads();
    }

    int row = row0 + r;
    if (row >= M) return;
    float acc[4] = {acc0, acc1, acc2, acc3};
@ADD_BIAS@    float* out = c + (long long)row * N + col0 + first;
    if (N % 4 == 0) {
        if (col0 + first < N) *reinterpret_cast<float4*>(out) = make_float4(acc[0], acc[1], acc[2], acc[3]);
    } else {
        for (int j = 0; j < 4; ++j) {
            if (col0 + first + j < N) out[j] = acc[j];
        }
    }
}

@ENTRY@
