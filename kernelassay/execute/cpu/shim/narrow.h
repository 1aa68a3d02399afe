// __half and __nv_bfloat16, stored as 16 bits. Each operation is carried out in single precision and
// rounded once more, which for + - * / and sqrt equals rounding the exact result once; the fused
// multiply-add goes through round-to-odd.
#pragma once

CU_SHIM float cu_half_to_float(unsigned short h) {
  const unsigned magnitude = (h & 0x7FFFu) << 13, sign = (unsigned)(h & 0x8000) << 16;
  if ((h & 0x7C00) == 0x7C00) return cu_cast<float>(sign | (magnitude + 0x70000000u));
  return cu_cast<float>(sign | cu_cast<unsigned>(cu_cast<float>(magnitude) * 0x1p112f));
}
CU_SHIM unsigned short cu_float_to_half(float f) {
  const unsigned sign = cu_cast<unsigned>(f) >> 16 & 0x8000, x = cu_cast<unsigned>(f) & 0x7FFFFFFFu;
  if (x > 0x7F800000u) return 0x7FFF;
  if (x >= 0x47800000u) return (unsigned short)(sign | 0x7C00);
  if (x < 0x38800000u)  // subnormal: the addition rounds at the right bit
    return (unsigned short)(sign | (cu_cast<unsigned>(cu_cast<float>(x) + 0.5f) - 0x3F000000u));
  return (unsigned short)(sign | ((x + 0xC8000FFFu + (x >> 13 & 1)) >> 13));
}
CU_SHIM float cu_bfloat_to_float(unsigned short b) { return cu_cast<float>((unsigned)b << 16); }
CU_SHIM unsigned short cu_float_to_bfloat(float f) {
  const unsigned x = cu_cast<unsigned>(f);
  if ((x & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
  return (unsigned short)((x + 0x7FFFu + (x >> 16 & 1)) >> 16);
}
// A value between two floats, or doubles, becomes the one with the odd last bit; rounding that once
// more to a narrower format equals rounding the exact value.
CU_SHIM float cu_odd_float(double x) {
  const float f = (float)x;
  unsigned bits = cu_cast<unsigned>(f);
  if ((double)f == x || f - f != 0 || (bits & 1)) return f;
  bits = (x > (double)f) == (x > 0) ? bits | 1 : bits - 1;
  return cu_cast<float>(bits);
}
CU_SHIM float cu_fma_odd(float a, float b, float c) {
  const double product = (double)a * b, addend = c, sum = product + addend;
  const double part = sum - product, rest = (product - (sum - part)) + (addend - part);
  unsigned long long bits = cu_cast<unsigned long long>(sum);
  if (sum - sum == 0 && rest != 0 && !(bits & 1)) bits = (rest > 0) == (sum > 0) ? bits | 1 : bits - 1;
  return cu_odd_float(cu_cast<double>(bits));
}

#define CU_NARROW(T, T2, widen, narrow)                                                       \
  struct T {                                                                                  \
    unsigned short cu_value;                                                                  \
    T() = default;                                                                            \
    T(float x) : cu_value(narrow(x)) {}                                                       \
    T(double x) : cu_value(narrow(cu_odd_float(x))) {}                                        \
    T(int x) : cu_value(narrow(cu_odd_float((double)x))) {}                                   \
    T(unsigned x) : cu_value(narrow(cu_odd_float((double)x))) {}                              \
    T(long long x) : cu_value(narrow((float)x)) {}                                            \
    operator float() const { return widen(cu_value); }                                        \
    T& operator+=(const T& o) { return *this = T(widen(cu_value) + widen(o.cu_value)); }      \
    T& operator-=(const T& o) { return *this = T(widen(cu_value) - widen(o.cu_value)); }      \
    T& operator*=(const T& o) { return *this = T(widen(cu_value) * widen(o.cu_value)); }      \
    T& operator/=(const T& o) { return *this = T(widen(cu_value) / widen(o.cu_value)); }      \
  };                                                                                          \
  struct alignas(4) T2 {                                                                      \
    T x, y;                                                                                   \
    T2() = default;                                                                           \
    T2(const T& a, const T& b) : x(a), y(b) {}                                                \
  };                                                                                          \
  CU_SHIM T __hadd(T a, T b) { return T((float)a + (float)b); }                               \
  CU_SHIM T __hsub(T a, T b) { return T((float)a - (float)b); }                               \
  CU_SHIM T __hmul(T a, T b) { return T((float)a * (float)b); }                               \
  CU_SHIM T __hdiv(T a, T b) { return T((float)a / (float)b); }                               \
  CU_SHIM T __hadd_rn(T a, T b) { return __hadd(a, b); }                                      \
  CU_SHIM T __hmul_rn(T a, T b) { return __hmul(a, b); }                                      \
  CU_SHIM T __hfma(T a, T b, T c) { return T(cu_fma_odd((float)a, (float)b, (float)c)); }     \
  CU_SHIM T __hneg(T a) { return T(-(float)a); }                                              \
  CU_SHIM T __habs(T a) { return T(fabsf((float)a)); }                                        \
  CU_SHIM T __hmax(T a, T b) { return T(fmaxf((float)a, (float)b)); }                         \
  CU_SHIM T __hmin(T a, T b) { return T(fminf((float)a, (float)b)); }                         \
  CU_SHIM bool __heq(T a, T b) { return (float)a == (float)b; }                               \
  CU_SHIM bool __hne(T a, T b) { return (float)a < (float)b || (float)a > (float)b; }         \
  CU_SHIM bool __hlt(T a, T b) { return (float)a < (float)b; }                                \
  CU_SHIM bool __hle(T a, T b) { return (float)a <= (float)b; }                               \
  CU_SHIM bool __hgt(T a, T b) { return (float)a > (float)b; }                                \
  CU_SHIM bool __hge(T a, T b) { return (float)a >= (float)b; }                               \
  CU_SHIM bool __hisnan(T a) { return isnan((float)a); }                                      \
  CU_SHIM int __hisinf(T a) { return isinf((float)a) ? ((float)a > 0 ? 1 : -1) : 0; }         \
  CU_SHIM T operator+(const T& a, const T& b) { return __hadd(a, b); }                        \
  CU_SHIM T operator-(const T& a, const T& b) { return __hsub(a, b); }                        \
  CU_SHIM T operator*(const T& a, const T& b) { return __hmul(a, b); }                        \
  CU_SHIM T operator/(const T& a, const T& b) { return __hdiv(a, b); }                        \
  CU_SHIM T operator-(const T& a) { return __hneg(a); }                                       \
  CU_SHIM T operator+(const T& a) { return a; }                                               \
  CU_SHIM bool operator==(const T& a, const T& b) { return __heq(a, b); }                     \
  CU_SHIM bool operator!=(const T& a, const T& b) { return (float)a != (float)b; }            \
  CU_SHIM bool operator<(const T& a, const T& b) { return __hlt(a, b); }                      \
  CU_SHIM bool operator<=(const T& a, const T& b) { return __hle(a, b); }                     \
  CU_SHIM bool operator>(const T& a, const T& b) { return __hgt(a, b); }                      \
  CU_SHIM bool operator>=(const T& a, const T& b) { return __hge(a, b); }                     \
  CU_SHIM T hexp(T a) { return T(expf((float)a)); }                                           \
  CU_SHIM T hexp2(T a) { return T(exp2f((float)a)); }                                         \
  CU_SHIM T hlog(T a) { return T(logf((float)a)); }                                           \
  CU_SHIM T hlog2(T a) { return T(log2f((float)a)); }                                         \
  CU_SHIM T hsqrt(T a) { return T(sqrtf((float)a)); }                                         \
  CU_SHIM T hrsqrt(T a) { return T(rsqrtf((float)a)); }                                       \
  CU_SHIM T hrcp(T a) { return T(1.0f / (float)a); }                                          \
  CU_SHIM T htanh(T a) { return T(tanhf((float)a)); }                                         \
  CU_SHIM T hsin(T a) { return T(sinf((float)a)); }                                           \
  CU_SHIM T hcos(T a) { return T(cosf((float)a)); }                                           \
  CU_SHIM T hfloor(T a) { return T(floorf((float)a)); }                                       \
  CU_SHIM T hceil(T a) { return T(ceilf((float)a)); }                                         \
  CU_SHIM T htrunc(T a) { return T(truncf((float)a)); }                                       \
  CU_SHIM T hrint(T a) { return T(rintf((float)a)); }                                         \
  CU_SHIM T2 __hadd2(T2 a, T2 b) { return T2(__hadd(a.x, b.x), __hadd(a.y, b.y)); }           \
  CU_SHIM T2 __hsub2(T2 a, T2 b) { return T2(__hsub(a.x, b.x), __hsub(a.y, b.y)); }           \
  CU_SHIM T2 __hmul2(T2 a, T2 b) { return T2(__hmul(a.x, b.x), __hmul(a.y, b.y)); }           \
  CU_SHIM T2 __h2div(T2 a, T2 b) { return T2(__hdiv(a.x, b.x), __hdiv(a.y, b.y)); }           \
  CU_SHIM T2 __hmax2(T2 a, T2 b) { return T2(__hmax(a.x, b.x), __hmax(a.y, b.y)); }           \
  CU_SHIM T2 __hmin2(T2 a, T2 b) { return T2(__hmin(a.x, b.x), __hmin(a.y, b.y)); }           \
  CU_SHIM T2 __hneg2(T2 a) { return T2(__hneg(a.x), __hneg(a.y)); }                           \
  CU_SHIM T2 __habs2(T2 a) { return T2(__habs(a.x), __habs(a.y)); }                           \
  CU_SHIM T2 __hfma2(T2 a, T2 b, T2 c) {                                                      \
    return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));                                  \
  }                                                                                           \
  CU_SHIM T2 h2exp(T2 a) { return T2(hexp(a.x), hexp(a.y)); }                                 \
  CU_SHIM T2 operator+(const T2& a, const T2& b) { return __hadd2(a, b); }                    \
  CU_SHIM T2 operator-(const T2& a, const T2& b) { return __hsub2(a, b); }                    \
  CU_SHIM T2 operator*(const T2& a, const T2& b) { return __hmul2(a, b); }                    \
  CU_SHIM T2 operator/(const T2& a, const T2& b) { return __h2div(a, b); }                    \
  CU_SHIM T2& operator+=(T2& a, const T2& b) { return a = __hadd2(a, b); }                    \
  CU_SHIM T2& operator*=(T2& a, const T2& b) { return a = __hmul2(a, b); }                    \
  CU_SHIM float __low2float(T2 a) { return (float)a.x; }                                      \
  CU_SHIM float __high2float(T2 a) { return (float)a.y; }

CU_NARROW(__half, __half2, cu_half_to_float, cu_float_to_half)
CU_NARROW(__nv_bfloat16, __nv_bfloat162, cu_bfloat_to_float, cu_float_to_bfloat)
#undef CU_NARROW
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

CU_SHIM __half __float2half(float x) { return __half(x); }
CU_SHIM __half __float2half_rn(float x) { return __half(x); }
CU_SHIM __half __double2half(double x) { return __half(x); }
CU_SHIM float __half2float(__half x) { return (float)x; }
CU_SHIM __half __int2half_rn(int x) { return __half(x); }
CU_SHIM int __half2int_rz(__half x) { return __float2int_rz((float)x); }
CU_SHIM int __half2int_rn(__half x) { return __float2int_rn((float)x); }
CU_SHIM __half __ushort_as_half(unsigned short x) { return cu_cast<__half>(x); }
CU_SHIM __half __short_as_half(short x) { return cu_cast<__half>(x); }
CU_SHIM unsigned short __half_as_ushort(__half x) { return x.cu_value; }
CU_SHIM short __half_as_short(__half x) { return (short)x.cu_value; }
CU_SHIM __half __float2half_rz(float x) {
  unsigned short h = __half(x).cu_value;
  if (fabsf(cu_half_to_float(h)) > fabsf(x)) h--;
  return cu_cast<__half>(h);
}
CU_SHIM __half2 __floats2half2_rn(float a, float b) { return __half2(__half(a), __half(b)); }
CU_SHIM __half2 __float2half2_rn(float a) { return __half2(__half(a), __half(a)); }
CU_SHIM __half2 __float22half2_rn(float2 a) { return __half2(__half(a.x), __half(a.y)); }
CU_SHIM float2 __half22float2(__half2 a) { return {(float)a.x, (float)a.y}; }
CU_SHIM __half2 __halves2half2(__half a, __half b) { return __half2(a, b); }
CU_SHIM __half2 __half2half2(__half a) { return __half2(a, a); }
CU_SHIM __half2 make_half2(__half a, __half b) { return __half2(a, b); }
CU_SHIM __half __low2half(__half2 a) { return a.x; }
CU_SHIM __half __high2half(__half2 a) { return a.y; }

CU_SHIM __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
CU_SHIM __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
CU_SHIM __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
CU_SHIM float __bfloat162float(__nv_bfloat16 x) { return (float)x; }
CU_SHIM __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(x); }
CU_SHIM __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return cu_cast<__nv_bfloat16>(x); }
CU_SHIM unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.cu_value; }
CU_SHIM __nv_bfloat16 __float2bfloat16_rz(float x) {
  return cu_cast<__nv_bfloat16>((unsigned short)(isnan(x) ? 0x7FFF : cu_cast<unsigned>(x) >> 16));
}
CU_SHIM __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(b));
}
CU_SHIM __nv_bfloat162 __float2bfloat162_rn(float a) {
  return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(a));
}
CU_SHIM __nv_bfloat162 __float22bfloat162_rn(float2 a) {
  return __nv_bfloat162(__nv_bfloat16(a.x), __nv_bfloat16(a.y));
}
CU_SHIM float2 __bfloat1622float2(__nv_bfloat162 a) { return {(float)a.x, (float)a.y}; }
CU_SHIM __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __nv_bfloat162(a, b);
}
CU_SHIM __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return __nv_bfloat162(a, a); }
CU_SHIM __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
CU_SHIM __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
