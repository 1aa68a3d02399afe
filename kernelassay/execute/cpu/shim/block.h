// Threads of a block: indices, barriers, warp operations, fences.
#pragma once

// Written by the scheduler before each switch. Declared const, so that compilers keep them in
// registers and do not instrument them.
extern "C" {
extern const uint3 cu_threadIdx, cu_blockIdx, cu_blockDim, cu_gridDim;
void cu_barrier(unsigned long long site);
int cu_barrier_vote(unsigned long long site, int predicate, int what);
unsigned long long cu_warp(unsigned mask, unsigned long long value, int source, int op,
                           unsigned long long site);
int cu_lane();
void cu_fence();
void* cu_shared_array(const void* key, size_t nbytes, const char* name);
void* cu_dyn_smem();
}
#define threadIdx cu_threadIdx
#define blockIdx cu_blockIdx
#define blockDim cu_blockDim
#define gridDim cu_gridDim
#define warpSize 32

// Where in the source: the line, and a counter that tells two calls on one line apart.
#define CU_SITE ((unsigned long long)__LINE__ << 32 | __COUNTER__)

#define __syncthreads() cu_barrier(CU_SITE)
#define __syncthreads_count(p) cu_barrier_vote(CU_SITE, (p) != 0, 0)
#define __syncthreads_and(p) cu_barrier_vote(CU_SITE, (p) != 0, 1)
#define __syncthreads_or(p) cu_barrier_vote(CU_SITE, (p) != 0, 2)
#define __threadfence() cu_fence()
#define __threadfence_system() cu_fence()
#define __threadfence_block() ((void)0)

// Order is the contract with runtime/warp.h.
enum CuWarpOp {
  CU_SYNC, CU_SHUFFLE, CU_BALLOT, CU_MATCH, CU_ADD, CU_AND, CU_OR, CU_XOR,
  CU_MIN_SIGNED, CU_MAX_SIGNED, CU_MIN_UNSIGNED, CU_MAX_UNSIGNED
};

template <class T>
CU_SHIM unsigned long long cu_bits(T value) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
CU_SHIM T cu_shuffle(unsigned mask, T value, int source, unsigned long long site) {
  const unsigned long long bits = cu_warp(mask, cu_bits(value), source, CU_SHUFFLE, site);
  T result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}
// A lane whose source lies outside its segment of `width` lanes reads itself.
template <class T>
CU_SHIM T cu_shfl_down(unsigned long long site, unsigned m, T v, unsigned d, int width = 32) {
  const int lane = cu_lane();
  return cu_shuffle(m, v, (lane & (width - 1)) + (int)d < width ? lane + (int)d : lane, site);
}
template <class T>
CU_SHIM T cu_shfl_up(unsigned long long site, unsigned m, T v, unsigned d, int width = 32) {
  const int lane = cu_lane();
  return cu_shuffle(m, v, (lane & (width - 1)) - (int)d >= 0 ? lane - (int)d : lane, site);
}
template <class T>
CU_SHIM T cu_shfl_xor(unsigned long long site, unsigned m, T v, int x, int width = 32) {
  const int lane = cu_lane(), other = lane ^ x;
  return cu_shuffle(m, v, (other | (width - 1)) <= (lane | (width - 1)) ? other : lane, site);
}
template <class T>
CU_SHIM T cu_shfl(unsigned long long site, unsigned m, T v, int i, int width = 32) {
  const int lane = cu_lane();
  return cu_shuffle(m, v, (lane & ~(width - 1)) | (i & (width - 1)), site);
}
#define __shfl_sync(...) cu_shfl(CU_SITE, __VA_ARGS__)
#define __shfl_up_sync(...) cu_shfl_up(CU_SITE, __VA_ARGS__)
#define __shfl_down_sync(...) cu_shfl_down(CU_SITE, __VA_ARGS__)
#define __shfl_xor_sync(...) cu_shfl_xor(CU_SITE, __VA_ARGS__)

CU_SHIM void cu_syncwarp(unsigned long long site, unsigned mask = 0xffffffffu) {
  cu_warp(mask, 0, 0, CU_SYNC, site);
}
// The site must come first and __syncwarp() has no argument: a comma only if there is one.
#define __syncwarp(...) cu_syncwarp(CU_SITE, ##__VA_ARGS__)
CU_SHIM unsigned cu_ballot(unsigned long long site, unsigned mask, int predicate) {
  return (unsigned)cu_warp(mask, predicate != 0, 0, CU_BALLOT, site);
}
// All true means nobody of the mask who arrived voted false.
CU_SHIM int cu_all(unsigned long long site, unsigned mask, int predicate) {
  return cu_warp(mask, predicate == 0, 0, CU_BALLOT, site) == 0;
}
#define __ballot_sync(m, p) cu_ballot(CU_SITE, m, (p) != 0)
#define __any_sync(m, p) (cu_ballot(CU_SITE, m, (p) != 0) != 0)
#define __all_sync(m, p) cu_all(CU_SITE, m, (p) != 0)
#define __match_any_sync(m, v) ((unsigned)cu_warp(m, cu_bits(v), 0, CU_MATCH, CU_SITE))

CU_SHIM int cu_reduce(unsigned long long site, int, int signed_op, unsigned mask, int value) {
  return (int)cu_warp(mask, (unsigned)value, 0, signed_op, site);
}
CU_SHIM unsigned cu_reduce(unsigned long long site, int unsigned_op, int, unsigned mask,
                           unsigned value) {
  return (unsigned)cu_warp(mask, value, 0, unsigned_op, site);
}
#define __reduce_add_sync(m, v) cu_reduce(CU_SITE, CU_ADD, CU_ADD, m, v)
#define __reduce_min_sync(m, v) cu_reduce(CU_SITE, CU_MIN_UNSIGNED, CU_MIN_SIGNED, m, v)
#define __reduce_max_sync(m, v) cu_reduce(CU_SITE, CU_MAX_UNSIGNED, CU_MAX_SIGNED, m, v)
#define __reduce_and_sync(m, v) cu_reduce(CU_SITE, CU_AND, CU_AND, m, v)
#define __reduce_or_sync(m, v) cu_reduce(CU_SITE, CU_OR, CU_OR, m, v)
#define __reduce_xor_sync(m, v) cu_reduce(CU_SITE, CU_XOR, CU_XOR, m, v)
