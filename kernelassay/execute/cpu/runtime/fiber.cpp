#include "fiber.h"

#include <sys/mman.h>

char* stacks_base;

bool stacks_map() {
  if (stacks_base) return true;
  void* area = mmap(nullptr, kStackArea, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) return false;
  for (int i = 0; i < kMaxThreads; i++)
    mprotect(static_cast<char*>(area) + i * kStackStride, kGuardBytes, PROT_NONE);
  stacks_base = static_cast<char*>(area);
  return true;
}

#ifdef KA_ASSEMBLY_SWITCH

// The callee-saved registers of the System V ABI; `jmp` instead of `ret` spares the return-stack
// misprediction that would quadruple the cost of a switch.
extern "C" void ka_switch(void** save, void* to);
asm(R"(
.text
.globl ka_switch
.hidden ka_switch
.type ka_switch,@function
ka_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size ka_switch,.-ka_switch
)");

void context_start(Context& context, int stack, void (*entry)()) {
  // Tops are staggered so that the stacks' hot lines do not all map to one cache set.
  uintptr_t top = reinterpret_cast<uintptr_t>(stacks_base) + (stack + 1) * kStackStride - 64 -
                  (stack % 16) * 192;
  void** slot = reinterpret_cast<void**>(top & ~uintptr_t{15});
  *--slot = nullptr;  // return address of `entry`; keeps the stack 16-aligned at its call
  *--slot = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; i++) *--slot = nullptr;
  context.stack_pointer = slot;
}

void context_switch(Context& from, Context& to) {
  ka_switch(&from.stack_pointer, to.stack_pointer);
}

#else

void context_start(Context& context, int stack, void (*entry)()) {
  getcontext(&context.saved);
  context.saved.uc_stack.ss_sp = stacks_base + stack * kStackStride + kGuardBytes;
  context.saved.uc_stack.ss_size = kStackBytes;
  context.saved.uc_link = nullptr;
  makecontext(&context.saved, entry, 0);
}

void context_switch(Context& from, Context& to) { swapcontext(&from.saved, &to.saved); }

#endif
