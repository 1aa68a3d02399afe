// 8-bit floats: e4m3 (no infinities, largest value 448) and e5m2 (largest 57344).
#pragma once

typedef unsigned char __nv_fp8_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

CU_SHIM unsigned char cu_to_fp8(float x, bool saturate, bool e4m3) {
  const int mantissa = e4m3 ? 3 : 2, lowest = e4m3 ? -6 : -14;
  const float most = e4m3 ? 448.0f : 57344.0f;
  const unsigned char sign = cu_cast<unsigned>(x) >> 24 & 0x80;
  const float size = fabsf(x);
  if (isnan(x)) return sign | 0x7F;
  if (size == 0.0f) return sign;
  int exponent = (int)(cu_cast<unsigned>(size) >> 23) - 127;
  if (exponent < lowest) exponent = lowest;
  // Multiples of the last place; exact, as both are powers of two.
  const double place = cu_cast<double>((unsigned long long)(exponent - mantissa + 1023) << 52);
  double count = __builtin_rint((double)size / place);
  if (count * place > most) {
    if (saturate) return sign | (e4m3 ? 0x7E : 0x7B);
    return sign | (e4m3 ? 0x7F : 0x7C);
  }
  const unsigned hidden = 1u << mantissa;
  unsigned bits = (unsigned)count;
  if (bits >= 2 * hidden) bits >>= 1, exponent++;
  if (bits < hidden) return sign | (unsigned char)bits;
  return sign | (unsigned char)((unsigned)(exponent - lowest + 1) << mantissa | (bits - hidden));
}
CU_SHIM float cu_from_fp8(unsigned char v, bool e4m3) {
  const int mantissa = e4m3 ? 3 : 2, lowest = e4m3 ? -6 : -14;
  const unsigned size = v & 0x7F, hidden = 1u << mantissa;
  const float sign = v & 0x80 ? -1.0f : 1.0f;
  if (e4m3 ? size == 0x7F : size > 0x7C) return NAN;
  if (!e4m3 && size == 0x7C) return sign * INFINITY;
  const unsigned field = size >> mantissa;
  const unsigned bits = field ? hidden | (size & (hidden - 1)) : size;
  const int exponent = (field ? (int)field - 1 : 0) + lowest - mantissa;
  return sign * (float)bits * cu_cast<float>((unsigned)(exponent + 127) << 23);
}

CU_SHIM __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturation,
                                                 __nv_fp8_interpretation_t kind) {
  return cu_to_fp8(x, saturation == __NV_SATFINITE, kind == __NV_E4M3);
}
struct __nv_fp8_e4m3 {
  __nv_fp8_storage_t __x;
  __nv_fp8_e4m3() = default;
  explicit __nv_fp8_e4m3(float x) : __x(cu_to_fp8(x, true, true)) {}
  explicit operator float() const { return cu_from_fp8(__x, true); }
};
struct __nv_fp8_e5m2 {
  __nv_fp8_storage_t __x;
  __nv_fp8_e5m2() = default;
  explicit __nv_fp8_e5m2(float x) : __x(cu_to_fp8(x, true, false)) {}
  explicit operator float() const { return cu_from_fp8(__x, false); }
};
