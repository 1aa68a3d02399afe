#include <@HEADER@>
// c[M, N] = a[M, K] b[K, N]@EACH@ with the operands stored in @T@ and sums kept in float: one kernel rounds
// the operands, then a block computes a 32 x 32 tile of c, 1 x 4 outputs per thread. Operands are read in
// pairs along the direction they are stored in, one by one where a line is odd.
#define TILE 32
#define TILE_K 16
#define THREADS 256

extern "C" __global__ void narrow(const float* __restrict__ x, @T@* __restrict__ y, long long n) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        y[i] = @NARROW@(x[i]);
    }
}

// Two neighbours of one line of a matrix stored as [lines, length]; zero past its edges.
__device__ __forceinline__ @T2@ load2(const @T@* __restrict__ matrix, int line, int at, int lines, int length) {
    @T2@ v;
    v.x = @NARROW@(0.0f);
    v.y = @NARROW@(0.0f);
    if (line >= lines || at >= length) return v;
    const @T@* first = matrix + (long long)line * length + at;
    if (length % 2 == 0) {
        v = *reinterpret_cast<const @T2@*>(first);
    } else {
        v.x = first[0];
        if (at + 1 < length) v.y = first[1];
    }
    return v;
}

__device__ void multiply(const @T@* __restrict__ a, const @T@* __restrict__ b,@BIAS_PARAMETER@
                         float* __restrict__ c, int M, int N, int K) {
    __shared__ @T@ tile_a[TILE_K][TILE + 2];
    __shared__ @T@ tile_b[TILE_K][TILE + 2];
    int thread = threadIdx.x;
    int row0 = blockIdx.y * TILE;
    int col0 = blockIdx.x * TILE;
    int r = thread / (TILE / 4);
    int first = thread % (TILE / 4) * 4;

    float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k0 = 0; k0 < K; k0 += TILE_K) {
        for (int i = thread; i < TILE * TILE_K / 2; i += THREADS) {
@LOAD_A@
        }
        for (int i = thread; i < TILE * TILE_K / 2; i += THREADS) {
@LOAD_B@
        }
        __syncthreads();
        for (int k = 0; k < TILE_K; ++k) {
            float value = @WIDEN@(tile_a[k][r]);
            for (int j = 0; j < 4; ++j) {
                acc[j] += value * @WIDEN@(tile_b[k][first + j]);
            }
        }
        __syncthreads();
    }

    int row = row0 + r;
    if (row >= M) return;
    for (int j = 0; j < 4; ++j) {
        int col = col0 + first + j;
        if (col < N) c[(long long)row * N + col] = acc[j]@PLUS_BIAS@;
    }
}

@ENTRY@
