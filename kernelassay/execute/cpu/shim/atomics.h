// Atomics: one hook for the whole read-modify-write, then plain code; fibers switch only in barriers
// and warp operations, so nothing can come between.
#pragma once

extern "C" {
void cu_atomic(const volatile void* address, size_t n);
void cu_exchange(const volatile void* address, size_t n);
}
#ifndef CU_CHECKED
#define cu_atomic(address, n) ((void)0)
#define cu_exchange(address, n) ((void)0)
#endif

#define CU_ATOMIC(name, type, updated)                                      \
  CU_UNCHECKED CU_SHIM __attribute__((noinline)) type name(type* p, type v) { \
    cu_atomic(p, sizeof *p);                                                \
    const type old = *p;                                                    \
    *p = updated;                                                           \
    return old;                                                             \
  }                                                                         \
  CU_SHIM type name##_block(type* p, type v) { return name(p, v); }
#define CU_ATOMIC_INTEGER(type)                        \
  CU_ATOMIC(atomicAdd, type, old + v)                  \
  CU_ATOMIC(atomicSub, type, old - v)                  \
  CU_ATOMIC(atomicMax, type, old > v ? old : v)        \
  CU_ATOMIC(atomicMin, type, old < v ? old : v)        \
  CU_ATOMIC(atomicAnd, type, old & v)                  \
  CU_ATOMIC(atomicOr, type, old | v)                   \
  CU_ATOMIC(atomicXor, type, old ^ v)
CU_ATOMIC_INTEGER(int)
CU_ATOMIC_INTEGER(unsigned)
CU_ATOMIC_INTEGER(unsigned long long)
CU_ATOMIC(atomicMax, long long, old > v ? old : v)
CU_ATOMIC(atomicMin, long long, old < v ? old : v)
CU_ATOMIC(atomicAdd, float, old + v)
CU_ATOMIC(atomicAdd, double, old + v)
CU_ATOMIC(atomicAdd, __half, __hadd(old, v))
CU_ATOMIC(atomicAdd, __half2, __hadd2(old, v))
CU_ATOMIC(atomicAdd, __nv_bfloat16, __hadd(old, v))
CU_ATOMIC(atomicAdd, __nv_bfloat162, __hadd2(old, v))
CU_ATOMIC(atomicInc, unsigned, old >= v ? 0 : old + 1)
CU_ATOMIC(atomicDec, unsigned, old == 0 || old > v ? v : old - 1)
#undef CU_ATOMIC_INTEGER
#undef CU_ATOMIC

#define CU_EXCHANGE(type)                                                                \
  CU_UNCHECKED CU_SHIM __attribute__((noinline)) type atomicExch(type* p, type v) {      \
    cu_exchange(p, sizeof *p);                                                           \
    const type old = *p;                                                                 \
    *p = v;                                                                              \
    return old;                                                                          \
  }
CU_EXCHANGE(int) CU_EXCHANGE(unsigned) CU_EXCHANGE(unsigned long long) CU_EXCHANGE(float)
#undef CU_EXCHANGE

#define CU_COMPARE(type)                                                                       \
  CU_UNCHECKED CU_SHIM __attribute__((noinline)) type atomicCAS(type* p, type expected, type v) { \
    cu_atomic(p, sizeof *p);                                                                   \
    const type old = *p;                                                                       \
    if (old == expected) *p = v;                                                               \
    return old;                                                                                \
  }
CU_COMPARE(int) CU_COMPARE(unsigned) CU_COMPARE(unsigned long long) CU_COMPARE(unsigned short)
#undef CU_COMPARE
