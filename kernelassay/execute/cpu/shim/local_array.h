// Local arrays with known bounds. Outside them a GPU finds other locals; here a read gives the
// pattern and a write is lost, so that what a kernel computes does not depend on the host's stack.
#pragma once

extern "C" void* cu_local_outside(size_t nbytes);

template <class T, unsigned long N>
struct cu_local_array {
  T data[N];

  // A template, so that no index type makes the built-in [] of the decayed pointer a better match.
  template <class I>
  __attribute__((always_inline)) inline T& operator[](I index) {
    if (__builtin_expect((unsigned long long)(long long)index < N, 1)) return data[index];
    return *(T*)cu_local_outside(sizeof(T));
  }
  template <class I>
  __attribute__((always_inline)) inline const T& operator[](I index) const {
    if (__builtin_expect((unsigned long long)(long long)index < N, 1)) return data[index];
    return *(const T*)cu_local_outside(sizeof(T));
  }
  __attribute__((always_inline)) inline operator T*() { return data; }
  __attribute__((always_inline)) inline operator const T*() const { return data; }
};
