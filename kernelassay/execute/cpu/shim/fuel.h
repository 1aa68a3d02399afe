// Fuel: one unit per loop iteration, counted at the head of every loop of the kernel, so that a
// runaway loop ends after the same number of steps on every machine. `goto` loops are left to the
// wall-clock backstop. Must come last: it redefines keywords.
#pragma once
#ifdef CU_CHECKED

extern "C" long long cu_fuel_left;
#ifdef __x86_64__
// In assembly: the counter must not be instrumented as an access of the kernel.
static inline __attribute__((always_inline)) bool cu_burn() {
  bool empty;
  __asm__ volatile("decq %0" : "+m"(cu_fuel_left), "=@ccs"(empty));
  return empty;
}
#else
CU_UNCHECKED static bool __attribute__((noinline)) cu_burn() { return --cu_fuel_left < 0; }
#endif
// Loops of constexpr functions may run in the compiler, where there is no fuel.
#define CU_BURN __builtin_expect(!__builtin_is_constant_evaluated() && cu_burn(), 0)

#define for(...) for (__VA_ARGS__) if (CU_BURN) cu_fuel_out(); else
#define while(...) while ((CU_BURN ? cu_fuel_out() : (void)0), (__VA_ARGS__))

#endif
