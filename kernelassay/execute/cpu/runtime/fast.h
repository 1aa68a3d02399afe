// The common case of a check, inlined into the hooks: an access inside its buffer, array or stack,
// of whole words, that makes no finding. It leaves the shadow as check_access would; for anything
// else `passes` changes nothing and returns false, and check_access decides.
#pragma once
#include "checks.h"
#include "fiber.h"

namespace fast {

// A write that an access of the running thread may follow in silence. Own writes of this epoch count
// as ordered; those of others of its warp may be, which the slow path finds out.
inline bool after_write(const Record& r, bool global) {
  if (r.write_epoch == now.epoch) return (r.writer & kThreadBits) == now.thread;
  return !global || now.acquired || r.write_epoch < now.launch_first ||
         r.write_epoch >= now.block_first;
}

inline bool after_read(const Record& r, bool global) {
  if (r.read_epoch == now.epoch)
    return r.reader == now.thread && r.read_lanes == 1u << now.lane;
  return !global || now.acquired || r.read_epoch < now.launch_first ||
         r.read_epoch >= now.block_first;
}

template <bool writes>
inline bool silent(const Region& region, const Record& r, bool global) {
  if (writes) return after_write(r, global) && after_read(r, global);
  return r.write_epoch >= region.initialised_since && after_write(r, global);
}

// `n` bytes, a multiple of a word, at an address that should be a multiple of `n`.
template <Access access, size_t n>
inline bool passes(uintptr_t address) {
  static_assert(n % 4 == 0 && (access == Access::kRead || access == Access::kWrite));
  constexpr bool writes = access == Access::kWrite;
#ifdef KA_NO_FAST_PATH  // for the test that compares the two
  return false;
#endif
  if (packed_owed) return false;
  const bool global = address - global_base < kGlobalSpan;
  Region* region;
  if (global)
    region = &regions[(address - global_base) >> kWindowShift];
  else if (address - shared_base < kSharedSpan)
    region = &shared_regions[(address - shared_base) >> kSharedShift];
  else
    return on_a_stack(address);
  const uintptr_t offset = address - region->low, size = region->high - region->low;
  if (offset >= size || size - offset < n) return false;
  if ((address & (n - 1)) || (offset & 3) || region->shift != 2) return false;
  if (writes && region->role == kOperand) return false;
  Record* const first = region->records + (offset >> 2);
  for (size_t i = 0; i < n / 4; i++)
    if (!silent<writes>(*region, first[i], global)) return false;
  for (size_t i = 0; i < n / 4; i++) {
    if (writes)
      note_write(first[i], false);
    else
      note_read(first[i], global, 0);
  }
  return true;
}

}  // namespace fast
