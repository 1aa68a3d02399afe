// What is checked at an access. The rules:
//
// bounds      Outside the buffer or array: a finding. The bytes outside get the pattern before the
//             access, so a read sees the pattern and a write is lost. In packed surroundings other
//             buffers lie before and behind; their bytes are read and, with no further check,
//             written. Past the slack: a fault. A shared address that reaches no further than
//             kSharedReach is taken modulo 2^32 and lies outside an array: a finding.
// alignment   An access the hardware does in one piece must lie at a multiple of its size: else a fault.
// initialised A read of bytes nobody has written since the run (global) or block (shared) began,
//             unless the buffer is an operand: a finding; it reads the pattern they hold.
// races       Two accesses by different threads, at least one a write, not both atomic, not ordered:
//             a finding. A volatile read counts as atomic against atomics, not against plain
//             writes. Ordered are: accesses of one block in different epochs (a block barrier lies
//             between), and accesses of one warp in one epoch when the later lane knows of the
//             earlier access through warp operations. Accesses of different blocks of one launch
//             are not ordered, except by fence and atomic (release_acquire); launches are.
// operands    A write to an operand: a finding.
// locals      An element outside a local array: a finding; it reads the pattern, a write is lost.
//
// A finding never stops the kernel; a fault does.
#pragma once
#include "abi.h"
#include "memory.h"

enum class Access { kRead, kVolatileRead, kWrite, kAtomic, kExchange };
constexpr bool is_write(Access access) {
  return access != Access::kRead && access != Access::kVolatileRead;
}

[[noreturn]] void fault(Outcome outcome, const char* reason, uintptr_t address = 0, size_t n = 0);
void report(FindingKind kind, const Region* region, uintptr_t address, size_t n,
            int other_thread = -1, uint64_t line = 0);
// The thread ends or meets a barrier: its deferred race (see checks.cpp) is real.
void flush_pending(uint32_t thread);
// The window `address` lies in, or null.
Region* region_of(uintptr_t address);
// Switch a region to granules of 1 << shift bytes, finer than now.
void refine(Region& region, uint8_t shift);
// Whether an address is the cell that stands for what lies outside a local array (local.cpp).
bool is_local_cell(uintptr_t address);
void checks_begin_run();
void checks_begin_block();

// Check an access; `whole` if the hardware does it in one piece. `address` may be anything.
template <Access access>
void check_access(uintptr_t address, size_t n, bool whole);
