// float4 and its kin: plain aggregates with CUDA's alignment, and their make_ functions.
#pragma once

#define CU_VECTOR(type, name, align2, align4)                                              \
  struct name##1 { type x; };                                                              \
  struct alignas(align2) name##2 { type x, y; };                                           \
  struct name##3 { type x, y, z; };                                                        \
  struct alignas(align4) name##4 { type x, y, z, w; };                                     \
  CU_SHIM name##1 make_##name##1(type x) { return {x}; }                                   \
  CU_SHIM name##2 make_##name##2(type x, type y) { return {x, y}; }                        \
  CU_SHIM name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }             \
  CU_SHIM name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

CU_VECTOR(signed char, char, 2, 4)
CU_VECTOR(unsigned char, uchar, 2, 4)
CU_VECTOR(short, short, 4, 8)
CU_VECTOR(unsigned short, ushort, 4, 8)
CU_VECTOR(int, int, 8, 16)
CU_VECTOR(unsigned int, uint, 8, 16)
CU_VECTOR(long, long, 16, 16)
CU_VECTOR(unsigned long, ulong, 16, 16)
CU_VECTOR(long long, longlong, 16, 16)
CU_VECTOR(unsigned long long, ulonglong, 16, 16)
CU_VECTOR(float, float, 8, 16)
CU_VECTOR(double, double, 16, 16)
#undef CU_VECTOR

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
