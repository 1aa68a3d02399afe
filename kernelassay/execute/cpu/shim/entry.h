// What an image exports: one entry per kernel, that converts arguments as a call in C++ would.
#pragma once

struct CuSlot {  // layout: runtime/abi.h
  long long kind;
  union {
    long long integer;
    double real;
    void* pointer;
  };
};
struct CuKernel {
  void (*call)(const CuSlot*);
  int arity;
};

template <class T>
struct CuArgument {
  CU_UNCHECKED static T get(const CuSlot& slot) {
    return slot.kind == 1 ? (T)slot.real : (T)slot.integer;
  }
};
template <class T>
struct CuArgument<T*> {
  CU_UNCHECKED static T* get(const CuSlot& slot) { return (T*)slot.pointer; }
};

template <int... I>
struct CuIndices {};
template <int N, int... I>
struct CuCount : CuCount<N - 1, N - 1, I...> {};
template <int... I>
struct CuCount<0, I...> {
  typedef CuIndices<I...> type;
};

template <class... T>
CuCount<sizeof...(T)> cu_indices(void (*)(T...));
template <auto kernel, class... T, int... I>
CU_UNCHECKED static inline void cu_unpack(void (*)(T...), const CuSlot* slots, CuIndices<I...>) {
  kernel(CuArgument<T>::get(slots[I])...);
}
template <auto kernel>
CU_UNCHECKED static void cu_call(const CuSlot* slots) {
  cu_unpack<kernel>(kernel, slots, typename decltype(cu_indices(kernel))::type{});
}
template <class... T>
constexpr int cu_arity(void (*)(T...)) {
  return sizeof...(T);
}
#define CU_EXPORT(symbol, kernel)                                           \
  extern "C" __attribute__((visibility("default"))) const CuKernel symbol;  \
  extern "C" const CuKernel symbol = {cu_call<&kernel>, cu_arity(&kernel)};
