#include "checks.h"

#include <cstring>

#include "block.h"
#include "fiber.h"
#include "run.h"

Now now;

namespace {

// A compare-and-swap loop first reads its word plainly; against other threads' atomics that read is
// harmless. Such a conflict is therefore deferred: it is dropped when the thread's next atomic goes to
// the same address, and reported otherwise.
struct Pending {
  uintptr_t address;
  const Region* region;
  FindingKind kind;
  uint32_t size;
  int other_thread;
};
Pending pending[kMaxThreads];

// `__threadfence(); atomic(p)` in one block, then an atomic on the same p in a later block, orders the
// first block's accesses before the second's (the "last block finishes" pattern). The addresses of the
// running launch are remembered in a table with linear probing, as many as there may be tickets.
constexpr uint32_t kReleases = 1 << 16;
struct Release {
  uintptr_t address;
  uint32_t launch;
};
Release releases[kReleases];
uint32_t release_count;
uint32_t release_launch;
bool fenced;  // this block has executed a fence

// The slot of `address` in the running launch, or the free one where it belongs.
Release& release_slot(uintptr_t address) {
  uint32_t at = uint32_t((address >> 2) * 0x9E3779B97F4A7C15ull >> 48);
  while (releases[at].launch == now.launch_first && releases[at].address != address)
    at = (at + 1) % kReleases;
  return releases[at];
}

void release_acquire(uintptr_t address) {
  if (release_launch != now.launch_first) {
    if (now.launch_first < release_launch) memset(releases, 0, sizeof releases);  // renewed epochs
    release_launch = now.launch_first;
    release_count = 0;
  }
  Release& slot = release_slot(address);
  if (slot.launch == now.launch_first) {
    now.acquired = now.acquired || now.block_first != now.launch_first;
  } else if (fenced && release_count < kReleases / 2) {
    slot = {address, now.launch_first};
    release_count++;
  }
}

bool earlier_block(uint32_t epoch) { return epoch >= now.launch_first && epoch < now.block_first; }

// Whether the running lane knows of an access by `thread` at that thread's clock `clock`.
bool warp_ordered(uint32_t thread, uint32_t clock) {
  return thread >> 5 == now.warp && now.clock[thread & 31] >= clock;
}

struct Conflict {
  bool found = false, with_atomic = false;
  int other = -1;
};

Conflict conflicting_write(const Record& r, bool global, bool atomic) {
  const bool by_atomic = r.writer & kAtomicWrite;
  const uint32_t writer = r.writer & kThreadBits;
  if (by_atomic && atomic) return {};
  if (r.write_epoch == now.epoch) {
    if (writer != now.thread && !warp_ordered(writer, r.write_clock))
      return {true, by_atomic, int(writer)};
  } else if (global && !now.acquired && earlier_block(r.write_epoch)) {
    return {true, by_atomic, -1};
  }
  return {};
}

Conflict conflicting_read(const Record& r, bool global, bool atomic) {
  if (atomic && (r.reader & kVolatileRead)) return {};
  const uint32_t reader = r.reader & kThreadBits;
  if (r.read_epoch == now.epoch) {
    if (r.reader & kManyWarps) return {true, false, int(reader)};
    if (reader >> 5 != now.warp) return {true, false, int(reader)};
    for (uint32_t lanes = r.read_lanes & ~(1u << now.lane); lanes; lanes &= lanes - 1) {
      const uint32_t lane = __builtin_ctz(lanes);
      if (now.clock[lane] < r.read_clock) return {true, false, int(now.warp * 32 + lane)};
    }
    if (global && (r.reader & kManyBlocks) && !now.acquired) return {true, false, -1};
  } else if (global && !now.acquired && earlier_block(r.read_epoch)) {
    return {true, false, -1};
  }
  return {};
}

// Forget the running thread's own plain read before its atomic on the same word.
void absorb_own_read(Record& r) {
  if (r.read_epoch == now.epoch && (r.reader & kThreadBits) == now.thread &&
      !(r.reader & (kManyWarps | kManyBlocks)) && r.read_lanes == 1u << now.lane)
    r.read_epoch = 0;
}

void defer(const Region& region, uintptr_t address, size_t n, FindingKind kind, int other) {
  flush_pending(now.thread);
  pending[now.thread] = {address, &region, kind, uint32_t(n), other};
}

template <Access access>
void check_bytes(Region& region, uintptr_t address, size_t n) {
  const bool global = region.role != kSharedArray;
  constexpr bool reads = access != Access::kWrite && access != Access::kExchange;
  constexpr bool writes = is_write(access);
  constexpr bool atomic = access == Access::kAtomic || access == Access::kExchange;
  const uintptr_t offset = address - region.low;
  if ((offset | n) & ((uintptr_t{1} << region.shift) - 1))
    refine(region, (offset | n) & 1 ? 0 : 1);
  bool uninitialised = false;
  Conflict conflict;
  const uintptr_t last = (offset + n - 1) >> region.shift;
  for (uintptr_t granule = offset >> region.shift; granule <= last; granule++) {
    Record& r = region.records[granule];
    if (reads && r.write_epoch < region.initialised_since) uninitialised = true;
    if (atomic) absorb_own_read(r);
    if (!conflict.found) conflict = conflicting_write(r, global, atomic);
    if (writes && !conflict.found) conflict = conflicting_read(r, global, atomic);
    if (writes)
      note_write(r, atomic);
    else
      note_read(r, global, access == Access::kVolatileRead ? kVolatileRead : 0);
  }
  if (uninitialised) report(kUninitialisedRead, &region, address, n);
  if (conflict.found && !(access == Access::kVolatileRead && conflict.with_atomic)) {
    const FindingKind kind = global ? kRaceGlobal : kRaceShared;
    if (access == Access::kRead && conflict.with_atomic)
      defer(region, address, n, kind, conflict.other);
    else
      report(kind, &region, address, n, conflict.other);
  }
  if (writes && region.role == kOperand) {
    region.written = true;
    report(kInputWrite, &region, address, n);
  }
}

template <Access access>
__attribute__((noinline)) void outside(Region& region, uintptr_t address, size_t n) {
  const bool shared = region.role == kSharedArray;
  constexpr bool writes = is_write(access);
  // Past the slack nothing may be touched; a shared window is slack throughout.
  const bool far = !shared && (address + n + kSlack < region.low || address > region.high + kSlack);
  if (!region.live || far) fault(kCrash, "illegal address", address, n);
  report(shared ? (writes ? kOobSharedWrite : kOobSharedRead)
                : (writes ? kOobGlobalWrite : kOobGlobalRead),
         &region, address, n);
  const uintptr_t end = address + n;
  if (address < region.low) packed_show(region, address, end < region.low ? end : region.low);
  if (end > region.high) packed_show(region, address > region.high ? address : region.high, end);
  if (writes) packed_owe(region, address, n);
  const uintptr_t low = address > region.low ? address : region.low;
  const uintptr_t high = end < region.high ? end : region.high;
  if (low < high) check_bytes<access>(region, low, high - low);
}

// Neither buffer nor shared window: locals, a wrapped shared address, the runtime's own data,
// constants; or a wild pointer.
__attribute__((noinline)) void elsewhere(uintptr_t address, size_t n, bool writes) {
  if (!running) return;  // an image's initialisers, while it is loaded
  if (on_a_stack(address) || is_local_cell(address)) return;
  uintptr_t wrapped;
  if (const Region* array = shared_wrapped(address, n, &wrapped)) {
    report(writes ? kOobSharedWrite : kOobSharedRead, array, wrapped, n);
    return fill_pattern(address, address + n);
  }
  if (launch_owns_data(address, n, writes)) return;
  fault(kCrash, "illegal address", address, n);
}

}  // namespace

template <Access access>
void check_access(uintptr_t address, size_t n, bool whole) {
  Region* region;
  if (packed_owed) packed_deliver();
  if (address - shared_base < kSharedSpan)
    region = &shared_regions[(address - shared_base) >> kSharedShift];
  else if (address - global_base < kGlobalSpan)
    region = &regions[(address - global_base) >> kWindowShift];
  else
    return elsewhere(address, n, is_write(access));
  if (whole && (address & (n - 1))) {
    report(kMisaligned, region, address, n);
    fault(kCrash, "misaligned address", address, n);
  }
  constexpr bool atomic = access == Access::kAtomic || access == Access::kExchange;
  if (atomic) {
    Pending& own = pending[now.thread];
    if (own.address == address) own.address = 0;
  }
  if (address >= region->low && address + n <= region->high && n)
    check_bytes<access>(*region, address, n);
  else if (n)
    outside<access>(*region, address, n);
  if (atomic) release_acquire(address);
}

// Records keep their meaning: each is copied to its parts, from the end.
void refine(Region& region, uint8_t shift) {
  const size_t count = (region.high - region.low + (size_t{1} << region.shift) - 1) >> region.shift;
  const size_t parts = size_t{1} << (region.shift - shift);
  for (size_t i = count; i-- > 0;) {
    const Record record = region.records[i];
    for (size_t k = 0; k < parts; k++) region.records[i * parts + k] = record;
  }
  region.shift = shift;
}

template void check_access<Access::kRead>(uintptr_t, size_t, bool);
template void check_access<Access::kVolatileRead>(uintptr_t, size_t, bool);
template void check_access<Access::kWrite>(uintptr_t, size_t, bool);
template void check_access<Access::kAtomic>(uintptr_t, size_t, bool);
template void check_access<Access::kExchange>(uintptr_t, size_t, bool);

void flush_pending(uint32_t thread) {
  Pending& own = pending[thread];
  if (!own.address) return;
  report(own.kind, own.region, own.address, own.size, own.other_thread);
  own.address = 0;
}

void checks_begin_run() {
  for (Pending& each : pending) each.address = 0;
}

void checks_begin_block() {
  fenced = false;
  now.acquired = false;
}

extern "C" void cu_fence() { fenced = true; }
