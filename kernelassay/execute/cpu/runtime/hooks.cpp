// The instrumentation interface of -fsanitize=thread and -fsanitize=alignment, implemented by our
// checks instead of a sanitizer's runtime. A compiler calls __tsan_<read|write><n> before it touches n
// bytes that another thread could see, the unaligned form where the type promises less alignment.
#include <cstring>

#include "fast.h"

namespace {
template <Access access>
inline void hook(const volatile void* address, size_t n, bool whole) {
  check_access<access>(reinterpret_cast<uintptr_t>(address), n, whole);
}

template <Access access, size_t n>
inline void hook_whole(const volatile void* address) {
  if constexpr (n % 4 == 0)
    if (fast::passes<access, n>(reinterpret_cast<uintptr_t>(address))) return;
  hook<access>(address, n, true);
}
}  // namespace

#define HOOK_SIZE(n)                                                                       \
  void __tsan_read##n(void* a) { hook_whole<Access::kRead, n>(a); }                        \
  void __tsan_write##n(void* a) { hook_whole<Access::kWrite, n>(a); }                      \
  void __tsan_unaligned_read##n(void* a) { hook<Access::kRead>(a, n, false); }             \
  void __tsan_unaligned_write##n(void* a) { hook<Access::kWrite>(a, n, false); }           \
  void __tsan_volatile_read##n(void* a) { hook<Access::kVolatileRead>(a, n, true); }       \
  void __tsan_volatile_write##n(void* a) { hook<Access::kWrite>(a, n, true); }             \
  void __tsan_unaligned_volatile_read##n(void* a) {                                             \
    hook<Access::kVolatileRead>(a, n, false);                                              \
  }                                                                                        \
  void __tsan_unaligned_volatile_write##n(void* a) { hook<Access::kWrite>(a, n, false); }  \
  void __tsan_read_write##n(void* a) {                                                     \
    hook<Access::kRead>(a, n, true);                                                       \
    hook<Access::kWrite>(a, n, true);                                                      \
  }

extern "C" {
HOOK_SIZE(1)
HOOK_SIZE(2)
HOOK_SIZE(4)
HOOK_SIZE(8)
HOOK_SIZE(16)
void __tsan_read_range(void* a, size_t n) { hook<Access::kRead>(a, n, false); }
void __tsan_write_range(void* a, size_t n) { hook<Access::kWrite>(a, n, false); }
void* __tsan_memcpy(void* to, const void* from, size_t n) {
  hook<Access::kRead>(from, n, false);
  hook<Access::kWrite>(to, n, false);
  return memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n) {
  hook<Access::kRead>(from, n, false);
  hook<Access::kWrite>(to, n, false);
  return memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, size_t n) {
  hook<Access::kWrite>(to, n, false);
  return memset(to, value, n);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}

// A vector load or store through a pointer that is not a multiple of its size: the compiler splits
// it into scalar accesses, which hides it from the hooks above; this check stands before them.
void __ubsan_handle_type_mismatch_v1_abort(const void*, uintptr_t address) {
  report(kMisaligned, region_of(address), address, 0);
  fault(kCrash, "misaligned address", address);
}

void cu_atomic(const volatile void* address, size_t n) { hook<Access::kAtomic>(address, n, true); }
void cu_exchange(const volatile void* address, size_t n) {
  hook<Access::kExchange>(address, n, true);
}
}
