// Types, qualifiers, limits and bit casts.
#pragma once

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#define __CUDA_ARCH__ 900
#define __CUDACC__ 1
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __inline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
// Mutants break the promise of __restrict__; without it they behave the same under every compiler.
#define __restrict__
#define __restrict

// Code of the shim itself that touches a kernel's memory; it calls the hooks by hand.
#define CU_UNCHECKED __attribute__((no_sanitize("thread"), no_sanitize("alignment")))
#define CU_SHIM static inline __attribute__((unused))

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define HUGE_VAL __builtin_inf()
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931e+0
#define M_PI 3.14159265358979323846
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define M_2_SQRTPI 1.12837916709551257390
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define DBL_MAX __DBL_MAX__
#define DBL_MIN __DBL_MIN__
#define DBL_EPSILON __DBL_EPSILON__
#define CHAR_BIT 8
#define SCHAR_MAX __SCHAR_MAX__
#define SCHAR_MIN (-__SCHAR_MAX__ - 1)
#define UCHAR_MAX 255
#define SHRT_MAX __SHRT_MAX__
#define SHRT_MIN (-__SHRT_MAX__ - 1)
#define USHRT_MAX 65535
#define INT_MAX __INT_MAX__
#define INT_MIN (-__INT_MAX__ - 1)
#define UINT_MAX (__INT_MAX__ * 2u + 1u)
#define LONG_MAX __LONG_MAX__
#define LONG_MIN (-__LONG_MAX__ - 1l)
#define ULONG_MAX (__LONG_MAX__ * 2ul + 1ul)
#define LLONG_MAX __LONG_LONG_MAX__
#define LLONG_MIN (-__LONG_LONG_MAX__ - 1ll)
#define ULLONG_MAX (__LONG_LONG_MAX__ * 2ull + 1ull)
#define INT32_MAX INT_MAX
#define INT32_MIN INT_MIN
#define UINT32_MAX UINT_MAX
#define INT64_MAX LLONG_MAX
#define INT64_MIN LLONG_MIN
#define UINT64_MAX ULLONG_MAX
#define SIZE_MAX __SIZE_MAX__
#ifndef NULL
#define NULL 0
#endif

template <class To, class From>
CU_SHIM To cu_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bit cast between sizes");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

extern "C" {
void cu_trap();
void cu_fuel_out();
}
CU_SHIM void __trap() { cu_trap(); }
CU_SHIM void __brkpt() {}
CU_SHIM void __nanosleep(unsigned) {}
// Byte by byte, so that each access is checked.
CU_SHIM void* cu_memcpy(void* to, const void* from, size_t n) {
  for (size_t i = 0; i < n; i++) ((unsigned char*)to)[i] = ((const unsigned char*)from)[i];
  return to;
}
CU_SHIM void* cu_memset(void* to, int value, size_t n) {
  for (size_t i = 0; i < n; i++) ((unsigned char*)to)[i] = (unsigned char)value;
  return to;
}
#define memcpy cu_memcpy
#define memset cu_memset
CU_SHIM int printf(const char*, ...) { return 0; }
#define assert(...) ((__VA_ARGS__) ? (void)0 : cu_trap())
#define __builtin_assume(x) ((void)0)
#define __assume(x) ((void)0)
