// Elementary functions on float, double and integers. The single precision ones live in the runtime
// (computed in double, rounded once).
#pragma once

#define CU_UNARY(name)                                               \
  extern "C" float cu_##name##f(float) noexcept;                     \
  CU_SHIM float name##f(float x) { return cu_##name##f(x); }         \
  CU_SHIM float name(float x) { return cu_##name##f(x); }            \
  CU_SHIM double name(double x) { return __builtin_##name(x); }      \
  CU_SHIM double name(int x) { return __builtin_##name((double)x); }
CU_UNARY(exp) CU_UNARY(exp2) CU_UNARY(expm1) CU_UNARY(log) CU_UNARY(log2) CU_UNARY(log10)
CU_UNARY(log1p) CU_UNARY(sin) CU_UNARY(cos) CU_UNARY(tan) CU_UNARY(asin) CU_UNARY(acos)
CU_UNARY(atan) CU_UNARY(sinh) CU_UNARY(cosh) CU_UNARY(tanh) CU_UNARY(asinh) CU_UNARY(acosh)
CU_UNARY(atanh) CU_UNARY(erf) CU_UNARY(erfc) CU_UNARY(tgamma) CU_UNARY(lgamma) CU_UNARY(cbrt)
#undef CU_UNARY

#define CU_EXACT(name)                                               \
  CU_SHIM float name##f(float x) { return __builtin_##name##f(x); }  \
  CU_SHIM float name(float x) { return __builtin_##name##f(x); }     \
  CU_SHIM double name(double x) { return __builtin_##name(x); }      \
  CU_SHIM double name(int x) { return __builtin_##name((double)x); }
CU_EXACT(sqrt) CU_EXACT(fabs) CU_EXACT(floor) CU_EXACT(ceil) CU_EXACT(trunc) CU_EXACT(round)
CU_EXACT(rint) CU_EXACT(nearbyint) CU_EXACT(logb)
#undef CU_EXACT

#define CU_BINARY(name)                                                                \
  extern "C" float cu_##name##f(float, float) noexcept;                                \
  CU_SHIM float name##f(float x, float y) { return cu_##name##f(x, y); }               \
  CU_SHIM float name(float x, float y) { return cu_##name##f(x, y); }                  \
  CU_SHIM double name(double x, double y) { return __builtin_##name(x, y); }           \
  CU_SHIM double name(double x, float y) { return __builtin_##name(x, (double)y); }    \
  CU_SHIM double name(float x, double y) { return __builtin_##name((double)x, y); }
CU_BINARY(pow) CU_BINARY(atan2) CU_BINARY(fmod) CU_BINARY(hypot)
#undef CU_BINARY
CU_SHIM double pow(double x, int y) { return __builtin_pow(x, (double)y); }
CU_SHIM float pow(float x, int y) { return cu_powf(x, (float)y); }

extern "C" {
float cu_exp10f(float) noexcept;
double cu_exp10(double) noexcept;
float cu_fmaf(float, float, float) noexcept;
double cu_fma(double, double, double) noexcept;
float cu_remainderf(float, float) noexcept;
float cu_fast_sinf(float) noexcept;
float cu_fast_cosf(float) noexcept;
float cu_fast_tanhf(float) noexcept;
}
CU_SHIM float exp10f(float x) { return cu_exp10f(x); }
CU_SHIM double exp10(double x) { return cu_exp10(x); }
CU_SHIM float remainderf(float x, float y) { return cu_remainderf(x, y); }
CU_SHIM float fmaf(float x, float y, float z) { return cu_fmaf(x, y, z); }
CU_SHIM float fma(float x, float y, float z) { return cu_fmaf(x, y, z); }
CU_SHIM double fma(double x, double y, double z) { return cu_fma(x, y, z); }
CU_SHIM float rsqrtf(float x) { return (float)(1.0 / __builtin_sqrt((double)x)); }
CU_SHIM float rsqrt(float x) { return rsqrtf(x); }
CU_SHIM double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
CU_SHIM float copysignf(float x, float y) { return __builtin_copysignf(x, y); }
CU_SHIM float copysign(float x, float y) { return __builtin_copysignf(x, y); }
CU_SHIM double copysign(double x, double y) { return __builtin_copysign(x, y); }
CU_SHIM float ldexpf(float x, int e) { return __builtin_ldexpf(x, e); }
CU_SHIM float scalbnf(float x, int e) { return __builtin_ldexpf(x, e); }
CU_SHIM double ldexp(double x, int e) { return __builtin_ldexp(x, e); }
CU_SHIM float frexpf(float x, int* e) { return __builtin_frexpf(x, e); }
CU_SHIM float modff(float x, float* whole) { return __builtin_modff(x, whole); }
CU_SHIM float fdimf(float x, float y) { return x > y ? x - y : (x <= y ? 0.0f : x + y); }
CU_SHIM float fdividef(float x, float y) { return x / y; }
CU_SHIM float sinpif(float x) { return (float)__builtin_sin(3.14159265358979323846 * x); }
CU_SHIM float cospif(float x) { return (float)__builtin_cos(3.14159265358979323846 * x); }
CU_SHIM float normcdff(float x) {
  return (float)(0.5 * __builtin_erfc(-(double)x * 0.70710678118654752440));
}
CU_SHIM void sincosf(float x, float* s, float* c) { *s = sinf(x); *c = cosf(x); }
CU_SHIM int ilogbf(float x) { return __builtin_ilogbf(x); }
CU_SHIM int lrintf(float x) { return (int)__builtin_rintf(x); }
CU_SHIM long long llrintf(float x) { return (long long)__builtin_rintf(x); }
CU_SHIM long lroundf(float x) { return (long)__builtin_roundf(x); }

#define CU_CLASSIFY(type)                                                      \
  CU_SHIM bool isnan(type x) { return x != x; }                                \
  CU_SHIM bool isinf(type x) { return __builtin_isinf(x); }                    \
  CU_SHIM bool isfinite(type x) { return x - x == 0; }                         \
  CU_SHIM bool signbit(type x) { return __builtin_signbit(x); }                \
  CU_SHIM bool isnormal(type x) { return __builtin_isnormal(x); }
CU_CLASSIFY(float) CU_CLASSIFY(double)
#undef CU_CLASSIFY

// One NaN gives the other operand; of two zeros the positive one is larger.
CU_SHIM float fmaxf(float a, float b) {
  if (a == b) return cu_cast<float>(cu_cast<int>(a) & cu_cast<int>(b));
  return b != b || a > b ? a : b;
}
CU_SHIM float fminf(float a, float b) {
  if (a == b) return cu_cast<float>(cu_cast<int>(a) | cu_cast<int>(b));
  return b != b || a < b ? a : b;
}
CU_SHIM double fmax(double a, double b) {
  if (a == b) return cu_cast<double>(cu_cast<long long>(a) & cu_cast<long long>(b));
  return b != b || a > b ? a : b;
}
CU_SHIM double fmin(double a, double b) {
  if (a == b) return cu_cast<double>(cu_cast<long long>(a) | cu_cast<long long>(b));
  return b != b || a < b ? a : b;
}
CU_SHIM float fmax(float a, float b) { return fmaxf(a, b); }
CU_SHIM float fmin(float a, float b) { return fminf(a, b); }

#define CU_MINMAX(result, left, right)                                                     \
  CU_SHIM result min(left a, right b) { return (result)a < (result)b ? (result)a : (result)b; } \
  CU_SHIM result max(left a, right b) { return (result)a > (result)b ? (result)a : (result)b; }
CU_MINMAX(int, int, int)
CU_MINMAX(unsigned, unsigned, unsigned)
CU_MINMAX(unsigned, int, unsigned)
CU_MINMAX(unsigned, unsigned, int)
CU_MINMAX(long, long, long)
CU_MINMAX(unsigned long, unsigned long, unsigned long)
CU_MINMAX(unsigned long, long, unsigned long)
CU_MINMAX(unsigned long, unsigned long, long)
CU_MINMAX(long long, long long, long long)
CU_MINMAX(unsigned long long, unsigned long long, unsigned long long)
CU_MINMAX(unsigned long long, long long, unsigned long long)
CU_MINMAX(unsigned long long, unsigned long long, long long)
#undef CU_MINMAX
CU_SHIM float min(float a, float b) { return fminf(a, b); }
CU_SHIM float max(float a, float b) { return fmaxf(a, b); }
CU_SHIM double min(double a, double b) { return fmin(a, b); }
CU_SHIM double max(double a, double b) { return fmax(a, b); }
CU_SHIM double min(float a, double b) { return fmin((double)a, b); }
CU_SHIM double max(float a, double b) { return fmax((double)a, b); }
CU_SHIM double min(double a, float b) { return fmin(a, (double)b); }
CU_SHIM double max(double a, float b) { return fmax(a, (double)b); }

CU_SHIM int abs(int x) { return x < 0 ? -x : x; }
CU_SHIM long abs(long x) { return x < 0 ? -x : x; }
CU_SHIM long long abs(long long x) { return x < 0 ? -x : x; }
CU_SHIM float abs(float x) { return __builtin_fabsf(x); }
CU_SHIM double abs(double x) { return __builtin_fabs(x); }
CU_SHIM long labs(long x) { return abs(x); }
CU_SHIM long long llabs(long long x) { return abs(x); }
CU_SHIM long long llmin(long long a, long long b) { return min(a, b); }
CU_SHIM long long llmax(long long a, long long b) { return max(a, b); }
CU_SHIM unsigned umin(unsigned a, unsigned b) { return min(a, b); }
CU_SHIM unsigned umax(unsigned a, unsigned b) { return max(a, b); }
