// Elementary functions. Single precision ones are computed in double precision by the C library and
// rounded once: within 0.5001 ulp, and equal on every host whose library is accurate in double.
#include <cmath>
#include <cstdint>
#include <cstring>

#define SINGLE(name) \
  float cu_##name##f(float x) { return float(std::name(double(x))); }
#define SINGLE2(name) \
  float cu_##name##f(float x, float y) { return float(std::name(double(x), double(y))); }

extern "C" {
SINGLE(exp) SINGLE(exp2) SINGLE(expm1) SINGLE(log) SINGLE(log2) SINGLE(log10) SINGLE(log1p)
SINGLE(sin) SINGLE(cos) SINGLE(tan) SINGLE(asin) SINGLE(acos) SINGLE(atan)
SINGLE(sinh) SINGLE(cosh) SINGLE(tanh) SINGLE(asinh) SINGLE(acosh) SINGLE(atanh)
SINGLE(erf) SINGLE(erfc) SINGLE(tgamma) SINGLE(lgamma) SINGLE(cbrt)
SINGLE2(pow) SINGLE2(atan2) SINGLE2(fmod) SINGLE2(hypot)
float cu_exp10f(float x) { return float(std::pow(10.0, double(x))); }
float cu_fmaf(float x, float y, float z) { return std::fma(x, y, z); }
double cu_fma(double x, double y, double z) { return std::fma(x, y, z); }
float cu_remainderf(float x, float y) { return std::remainder(x, y); }
double cu_exp10(double x) { return std::pow(10.0, x); }

// sin.approx and cos.approx: the argument is reduced in single precision, and the result has an
// absolute error of about 2^-21.
static double approximate_turn(float x) {
  const float turns = x * 0.15915494f;
  return double(turns - std::floor(turns)) * 6.283185307179586;
}
static float keep_21_bits(double x) { return float(std::nearbyint(x * 0x1p21) * 0x1p-21); }
float cu_fast_sinf(float x) { return keep_21_bits(std::sin(approximate_turn(x))); }
float cu_fast_cosf(float x) { return keep_21_bits(std::cos(approximate_turn(x))); }

// tanh.approx: a relative error of about 2^-11.
float cu_fast_tanhf(float x) {
  float y = cu_tanhf(x);
  uint32_t bits;
  memcpy(&bits, &y, 4);
  if (y == y) bits = (bits + 0x800u) & ~0xFFFu;
  memcpy(&y, &bits, 4);
  return y;
}
}
