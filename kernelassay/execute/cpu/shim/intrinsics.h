// Intrinsics: fast approximations, directed rounding, conversions, bit operations.
#pragma once

// The fast functions differ from the accurate ones the way a GPU's do: they are what the hardware's
// base-2 units and single precision products make of them.
CU_SHIM float __expf(float x) { return exp2f(x * 1.4426950408889634f); }
CU_SHIM float __exp10f(float x) { return exp2f(x * 3.3219280948873623f); }
CU_SHIM float __logf(float x) { return log2f(x) * 0.69314718f; }
CU_SHIM float __log2f(float x) { return log2f(x); }
CU_SHIM float __log10f(float x) { return log2f(x) * 0.30103f; }
CU_SHIM float __powf(float a, float b) { return exp2f(b * log2f(a)); }
CU_SHIM float __sinf(float x) { return cu_fast_sinf(x); }
CU_SHIM float __cosf(float x) { return cu_fast_cosf(x); }
CU_SHIM float __tanf(float x) { return cu_fast_sinf(x) * (1.0f / cu_fast_cosf(x)); }
CU_SHIM float __tanhf(float x) { return cu_fast_tanhf(x); }
CU_SHIM void __sincosf(float x, float* s, float* c) { *s = __sinf(x); *c = __cosf(x); }
CU_SHIM float __fdividef(float a, float b) {
  const float size = fabsf(b);
  if (size > 0x1p126f && size < 0x1p127f * 2) return a - a == 0 ? 0.0f : NAN;
  return a * (1.0f / b);
}
CU_SHIM float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

CU_SHIM float __fsqrt_rn(float x) { return sqrtf(x); }
CU_SHIM float __frcp_rn(float x) { return 1.0f / x; }
CU_SHIM float __frsqrt_rn(float x) { return rsqrtf(x); }
CU_SHIM float __fdiv_rn(float a, float b) { return a / b; }
CU_SHIM float __fadd_rn(float a, float b) { return a + b; }
CU_SHIM float __fsub_rn(float a, float b) { return a - b; }
CU_SHIM float __fmul_rn(float a, float b) { return a * b; }
CU_SHIM float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
CU_SHIM double __dadd_rn(double a, double b) { return a + b; }
CU_SHIM double __dsub_rn(double a, double b) { return a - b; }
CU_SHIM double __dmul_rn(double a, double b) { return a * b; }
CU_SHIM double __ddiv_rn(double a, double b) { return a / b; }
CU_SHIM double __dsqrt_rn(double x) { return sqrt(x); }
CU_SHIM double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

// Round the exact value `near + rest` (|rest| below an ulp of `near`) to float: towards zero,
// upwards or downwards.
enum CuRounding { CU_ZERO, CU_UP, CU_DOWN };
CU_SHIM float cu_next(float x, bool up) {
  if (x == 0.0f) return up ? 1.4012985e-45f : -1.4012985e-45f;
  const int bits = cu_cast<int>(x);
  return cu_cast<float>((x > 0.0f) == up ? bits + 1 : bits - 1);
}
CU_SHIM float cu_round(double near, double rest, CuRounding mode) {
  const float f = (float)near;
  if (near - near != 0) return f;
  const bool above = (double)f > near || ((double)f == near && rest < 0);
  const bool below = (double)f < near || ((double)f == near && rest > 0);
  const bool towards_down = mode == CU_DOWN || (mode == CU_ZERO && near > 0);
  if (above && towards_down) return cu_next(f, false);
  if (below && !towards_down) return cu_next(f, true);
  return f;
}
CU_SHIM float cu_add_rounded(float a, float b, CuRounding mode) {
  const double x = a, y = b, sum = x + y, part = sum - x;
  return cu_round(sum, (x - (sum - part)) + (y - part), mode);
}
CU_SHIM float cu_divide_rounded(float a, float b, CuRounding mode) {
  const double quotient = (double)a / b;
  const double rest = cu_fma(-quotient, b, a);
  return cu_round(quotient, b > 0 ? rest : -rest, mode);
}
CU_SHIM float cu_sqrt_rounded(float x, CuRounding mode) {
  const double root = __builtin_sqrt((double)x);
  return cu_round(root, cu_fma(-root, root, x), mode);
}
#define CU_ROUNDED(suffix, mode)                                                              \
  CU_SHIM float __fadd_##suffix(float a, float b) { return cu_add_rounded(a, b, mode); }      \
  CU_SHIM float __fsub_##suffix(float a, float b) { return cu_add_rounded(a, -b, mode); }     \
  CU_SHIM float __fmul_##suffix(float a, float b) { return cu_round((double)a * b, 0, mode); } \
  CU_SHIM float __fdiv_##suffix(float a, float b) { return cu_divide_rounded(a, b, mode); }   \
  CU_SHIM float __frcp_##suffix(float a) { return cu_divide_rounded(1.0f, a, mode); }         \
  CU_SHIM float __fsqrt_##suffix(float a) { return cu_sqrt_rounded(a, mode); }                \
  CU_SHIM float __double2float_##suffix(double a) { return cu_round(a, 0, mode); }            \
  CU_SHIM float __int2float_##suffix(int a) { return cu_round((double)a, 0, mode); }          \
  CU_SHIM float __uint2float_##suffix(unsigned a) { return cu_round((double)a, 0, mode); }
CU_ROUNDED(rz, CU_ZERO) CU_ROUNDED(ru, CU_UP) CU_ROUNDED(rd, CU_DOWN)
#undef CU_ROUNDED

CU_SHIM float __int_as_float(int x) { return cu_cast<float>(x); }
CU_SHIM int __float_as_int(float x) { return cu_cast<int>(x); }
CU_SHIM float __uint_as_float(unsigned x) { return cu_cast<float>(x); }
CU_SHIM unsigned __float_as_uint(float x) { return cu_cast<unsigned>(x); }
CU_SHIM double __longlong_as_double(long long x) { return cu_cast<double>(x); }
CU_SHIM long long __double_as_longlong(double x) { return cu_cast<long long>(x); }
CU_SHIM int __double2loint(double x) { return (int)cu_cast<long long>(x); }
CU_SHIM int __double2hiint(double x) { return (int)(cu_cast<long long>(x) >> 32); }

// Conversions saturate, and take NaN to zero (to the most negative value for 64 bits).
template <class To>
CU_SHIM To cu_saturate(double x, double low, double above, To least, To most, To of_nan) {
  return x != x ? of_nan : x < low ? least : x >= above ? most : (To)x;
}
#define CU_TO_INTEGER(suffix, round)                                                          \
  CU_SHIM int __float2int_##suffix(float x) {                                                 \
    return cu_saturate<int>(round((double)x), -0x1p31, 0x1p31, INT_MIN, INT_MAX, 0);          \
  }                                                                                           \
  CU_SHIM unsigned __float2uint_##suffix(float x) {                                           \
    return cu_saturate<unsigned>(round((double)x), 0, 0x1p32, 0u, UINT_MAX, 0u);              \
  }                                                                                           \
  CU_SHIM long long __float2ll_##suffix(float x) {                                            \
    return cu_saturate<long long>(round((double)x), -0x1p63, 0x1p63, LLONG_MIN, LLONG_MAX,    \
                                  LLONG_MIN);                                                 \
  }                                                                                           \
  CU_SHIM int __double2int_##suffix(double x) {                                               \
    return cu_saturate<int>(round(x), -0x1p31, 0x1p31, INT_MIN, INT_MAX, 0);                  \
  }                                                                                           \
  CU_SHIM unsigned __double2uint_##suffix(double x) {                                         \
    return cu_saturate<unsigned>(round(x), 0, 0x1p32, 0u, UINT_MAX, 0u);                      \
  }                                                                                           \
  CU_SHIM long long __double2ll_##suffix(double x) {                                          \
    return cu_saturate<long long>(round(x), -0x1p63, 0x1p63, LLONG_MIN, LLONG_MAX, LLONG_MIN); \
  }
CU_TO_INTEGER(rn, __builtin_rint) CU_TO_INTEGER(rz, __builtin_trunc)
CU_TO_INTEGER(ru, __builtin_ceil) CU_TO_INTEGER(rd, __builtin_floor)
#undef CU_TO_INTEGER
CU_SHIM float __int2float_rn(int x) { return (float)x; }
CU_SHIM float __uint2float_rn(unsigned x) { return (float)x; }
CU_SHIM float __ll2float_rn(long long x) { return (float)x; }
CU_SHIM float __ull2float_rn(unsigned long long x) { return (float)x; }
CU_SHIM float __double2float_rn(double x) { return (float)x; }
CU_SHIM double __int2double_rn(int x) { return x; }
CU_SHIM double __uint2double_rn(unsigned x) { return x; }

CU_SHIM int __popc(unsigned x) { return __builtin_popcount(x); }
CU_SHIM int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
CU_SHIM int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
CU_SHIM int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
CU_SHIM int __ffs(int x) { return __builtin_ffs(x); }
CU_SHIM int __ffsll(long long x) { return __builtin_ffsll(x); }
CU_SHIM unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0F0F0F0Fu) | (x & 0x0F0F0F0Fu) << 4;
  return __builtin_bswap32(x);
}
CU_SHIM unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) result |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
  return result;
}
CU_SHIM int __mul24(int a, int b) { return (int)((unsigned)(a << 8 >> 8) * (unsigned)(b << 8 >> 8)); }
CU_SHIM unsigned __umul24(unsigned a, unsigned b) { return (a & 0xFFFFFF) * (b & 0xFFFFFF); }
CU_SHIM int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
CU_SHIM unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}
CU_SHIM unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
CU_SHIM unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
  return (unsigned)(((unsigned long long)high << 32 | low) << (n & 31) >> 32);
}
CU_SHIM unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (n & 31));
}
CU_SHIM unsigned __sad(int a, int b, unsigned c) { return (unsigned)(a < b ? b - a : a - b) + c; }
CU_SHIM int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> 8 * i) * (int)(signed char)(b >> 8 * i);
  return c;
}
CU_SHIM long long clock64() { return 0; }

// Loads and stores with a cache hint are plain ones. The copy is the kernel's own access.
template <class T> CU_SHIM T __ldg(const T* p) { return *p; }
template <class T> CU_SHIM T __ldcg(const T* p) { return *p; }
template <class T> CU_SHIM T __ldca(const T* p) { return *p; }
template <class T> CU_SHIM T __ldcs(const T* p) { return *p; }
template <class T> CU_SHIM void __stcg(T* p, T v) { *p = v; }
template <class T> CU_SHIM void __stcs(T* p, T v) { *p = v; }
template <class T> CU_SHIM void __stwt(T* p, T v) { *p = v; }
