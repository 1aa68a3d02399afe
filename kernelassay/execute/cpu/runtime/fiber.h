// Contexts of a block's threads: own stack each, switched without a system call where we can.
#pragma once
#include <cstddef>
#include <cstdint>

#include "shadow.h"

#if defined(__x86_64__) && !defined(KA_UCONTEXT)
#define KA_ASSEMBLY_SWITCH 1
struct Context {
  void* stack_pointer;
};
#else
#include <ucontext.h>
struct Context {
  ucontext_t saved;
};
#endif

constexpr int kMaxThreads = 1024;
constexpr size_t kStackBytes = 128 << 10;  // usable bytes of one thread's stack
constexpr size_t kGuardBytes = 16 << 10;   // unmapped below each stack; a page size on every host

// All stacks lie in one mapping; `stack_area` tests membership, for the access hooks.
bool stacks_map();
extern char* stacks_base KA_HIDDEN;
constexpr size_t kStackStride = kStackBytes + kGuardBytes;
constexpr size_t kStackArea = kStackStride * kMaxThreads;

inline bool on_a_stack(uintptr_t address) {
  return address - reinterpret_cast<uintptr_t>(stacks_base) < kStackArea;
}

// Make `context` start in `entry` on stack number `stack` when it is next switched to.
void context_start(Context& context, int stack, void (*entry)());
// Save the running context in `from`, continue `to`.
void context_switch(Context& from, Context& to);
