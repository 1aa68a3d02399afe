// cooperative_groups: the thread block, tiles of a warp, and reductions over a tile.
//
// A call's site is its line: the barrier's own macro would stand here, once for all callers.
#pragma once

namespace cooperative_groups {
#define CU_LINE unsigned line = __builtin_LINE()
#define CU_AT ((unsigned long long)line << 32 | 0xffffffffu)

struct thread_block {
  void sync(CU_LINE) const { cu_barrier(CU_AT); }
  static unsigned thread_rank() {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  static dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  static dim3 group_dim() { return dim3(blockDim.x, blockDim.y, blockDim.z); }
  static dim3 dim_threads() { return group_dim(); }
};
CU_SHIM thread_block this_thread_block() { return {}; }

// N lanes of one warp, N a power of two; the last tile of a block may have fewer.
template <unsigned N, class Parent = thread_block>
struct thread_block_tile {
  static_assert(N >= 1 && N <= 32 && (N & (N - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 lanes");
  static unsigned thread_rank() { return (unsigned)cu_lane() & (N - 1); }
  static unsigned size() { return N; }
  static unsigned num_threads() { return N; }
  static unsigned meta_group_rank() { return Parent::thread_rank() / N; }
  static unsigned meta_group_size() { return (Parent::size() + N - 1) / N; }
  static unsigned mask() {
    const unsigned first = (unsigned)cu_lane() & ~(N - 1);
    const unsigned warp = thread_block::thread_rank() & ~31u;
    const unsigned left = thread_block::size() - warp - first;
    const unsigned lanes = left < N ? left : N;
    return (lanes == 32 ? 0xffffffffu : (1u << lanes) - 1) << first;
  }
  void sync(CU_LINE) const { cu_syncwarp(CU_AT, mask()); }
  template <class T> T shfl(T v, int i, CU_LINE) const {
    return cu_shfl(CU_AT, mask(), v, i, N);
  }
  template <class T> T shfl_down(T v, unsigned d, CU_LINE) const {
    return cu_shfl_down(CU_AT, mask(), v, d, N);
  }
  template <class T> T shfl_up(T v, unsigned d, CU_LINE) const {
    return cu_shfl_up(CU_AT, mask(), v, d, N);
  }
  template <class T> T shfl_xor(T v, unsigned x, CU_LINE) const {
    return cu_shfl_xor(CU_AT, mask(), v, (int)x, N);
  }
  unsigned ballot(int predicate, CU_LINE) const {
    return cu_ballot(CU_AT, mask(), predicate) >> ((unsigned)cu_lane() & ~(N - 1));
  }
  int any(int predicate, CU_LINE) const {
    return cu_ballot(CU_AT, mask(), predicate) != 0;
  }
  int all(int predicate, CU_LINE) const { return cu_all(CU_AT, mask(), predicate); }
};

template <unsigned N, class Parent>
CU_SHIM thread_block_tile<N, Parent> tiled_partition(const Parent&) { return {}; }

template <class Group>
CU_SHIM void sync(const Group& group, CU_LINE) { group.sync(line); }

template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };

template <class T, class Op>
CU_SHIM T cu_combine(const Op& op, T a, T b) { return op(a, b); }
// Through volatile: a __forceinline__ function behind a pointer cannot be inlined, which is an error.
template <class T>
CU_SHIM T cu_combine(T (*op)(T, T), T a, T b) {
  T (*volatile indirect)(T, T) = op;
  return indirect(a, b);
}
// A butterfly; on a GPU the order of a floating-point sum is not specified either.
template <unsigned N, class Parent, class T, class Op>
CU_SHIM T reduce(const thread_block_tile<N, Parent>& tile, T value, Op op, CU_LINE) {
  for (unsigned step = N / 2; step > 0; step /= 2) value = cu_combine(op, value, tile.shfl_xor(value, step, line));
  return value;
}
#undef CU_LINE
#undef CU_AT
}
