// What lies outside a thread's own local array: one cell that holds the pattern at every access.
#include "checks.h"
#include "memory.h"

namespace {

alignas(16) char cell[256];

}  // namespace

bool is_local_cell(uintptr_t address) {
  return address - reinterpret_cast<uintptr_t>(cell) < sizeof cell;
}

extern "C" void* cu_local_outside(size_t nbytes) {
  if (nbytes > sizeof cell) fault(kCrash, "access outside a local array of large elements");
  report(kOobLocal, nullptr, 0, nbytes);
  fill_pattern(reinterpret_cast<uintptr_t>(cell), reinterpret_cast<uintptr_t>(cell) + sizeof cell);
  return cell;
}
