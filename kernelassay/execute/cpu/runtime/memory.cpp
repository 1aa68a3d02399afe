#include "memory.h"

#include <sys/mman.h>

#include <cstring>

uintptr_t global_base, shared_base;
Region regions[kWindows], shared_regions[kSharedWindows];
uint32_t stated_pattern;
bool neighbour_owed;

namespace {
constexpr size_t kPage = 4096;
constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

uintptr_t reserve(size_t span, size_t alignment) {
  void* area = mmap(nullptr, span + alignment, PROT_NONE, kFlags, -1, 0);
  if (area == MAP_FAILED) return 0;
  return (reinterpret_cast<uintptr_t>(area) + alignment - 1) & ~(alignment - 1);
}

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

struct Owed {
  const Region* region;
  uintptr_t low, high;
};
Owed owed;

// The part of [low, high) that the neighbour's buffer covers, and where that part lies in it.
struct Overlap {
  Region* region;
  uintptr_t low, high, there;
};
Overlap overlap(const Region& region, uintptr_t low, uintptr_t high) {
  if (region.next < 0) return {nullptr, low, low, 0};
  Region& next = regions[region.next];
  const uintptr_t begin = round_up(region.high, 16), size = next.high - next.low;
  if (low < begin) low = begin;
  if (high > begin + size) high = begin + size;
  if (low >= high) return {nullptr, low, low, 0};
  return {&next, low, high, next.low + (low - begin)};
}

// Room for one record a byte; only granules that are touched take memory.
Record* records_map(size_t nbytes) {
  void* area = mmap(nullptr, (nbytes + 4) * sizeof(Record), PROT_READ | PROT_WRITE, kFlags, -1, 0);
  return area == MAP_FAILED ? nullptr : static_cast<Record*>(area);
}
}  // namespace

bool memory_map() {
  if (shared_base) return true;
  if (!global_base) global_base = reserve(kGlobalSpan, uintptr_t{1} << kWindowShift);
  uintptr_t shared = reserve(kSharedReach, uintptr_t{1} << kSharedShift);
  if (!global_base || !shared) return false;
  if (mprotect(reinterpret_cast<void*>(shared), kSharedSpan, PROT_READ | PROT_WRITE)) return false;
  for (Region& region : shared_regions)
    if (!(region.records = records_map(kMaxSharedBytes))) return false;
  shared_base = shared;
  return true;
}

void fill_pattern(uintptr_t low, uintptr_t high) {
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(&stated_pattern);
  for (; low < high && low % 4; low++) *reinterpret_cast<unsigned char*>(low) = bytes[low % 4];
  for (; low + 4 <= high; low += 4) memcpy(reinterpret_cast<void*>(low), &stated_pattern, 4);
  for (; low < high; low++) *reinterpret_cast<unsigned char*>(low) = bytes[low % 4];
}

int region_map(size_t nbytes, Role role, bool right_aligned) {
  const size_t body = round_up(nbytes ? nbytes : 1, kPage);
  if (body + 2 * kSlack > (uintptr_t{1} << kWindowShift) / 2) return -1;
  for (int window = 0; window < kWindows; window++) {
    Region& region = regions[window];
    if (region.live) continue;
    const uintptr_t middle = global_base + (uintptr_t(window) << kWindowShift) +
                             (uintptr_t{1} << (kWindowShift - 1));
    Record* records = records_map(nbytes);
    if (!records) return -1;
    void* mapping = mmap(reinterpret_cast<void*>(middle - kSlack), body + 2 * kSlack,
                         PROT_READ | PROT_WRITE, kFlags | MAP_FIXED, -1, 0);
    if (mapping == MAP_FAILED) {
      munmap(records, (nbytes + 4) * sizeof(Record));
      return -1;
    }
    const uintptr_t low = middle + (right_aligned ? body - round_up(nbytes, 16) : 0);
    region = Region{low, low + nbytes, records, 0, 2, role, true, false, nbytes, -1, nullptr, ""};
    return window;
  }
  return -1;
}

void region_unmap(int window) {
  Region& region = regions[window];
  if (!region.live) return;
  const size_t body = round_up(region.capacity ? region.capacity : 1, kPage);
  const uintptr_t start = (region.low & ~uintptr_t{kPage - 1}) - kSlack;
  // Keep the addresses reserved; the memory goes back.
  mmap(reinterpret_cast<void*>(start), body + 2 * kSlack, PROT_NONE, kFlags | MAP_FIXED, -1, 0);
  munmap(region.records, (region.capacity + 4) * sizeof(Record));
  region = Region{};
}

void neighbours_set(const int32_t* windows, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (count > 1) regions[windows[i]].next = windows[(i + 1) % count];
}

void neighbours_forget() {
  for (Region& region : regions) region.next = -1;
  neighbour_owed = false;
}

void neighbour_show(const Region& region, uintptr_t low, uintptr_t high) {
  fill_pattern(low, high);
  const Overlap part = overlap(region, low, high);
  if (!part.region) return;
  memcpy(reinterpret_cast<void*>(part.low), reinterpret_cast<void*>(part.there),
         part.high - part.low);
}

void neighbour_owe(const Region& region, uintptr_t low, uintptr_t high) {
  owed = {&region, low, high};
  neighbour_owed = true;
}

void neighbour_deliver() {
  neighbour_owed = false;
  const Overlap part = overlap(*owed.region, owed.low, owed.high);
  if (!part.region) return;
  memcpy(reinterpret_cast<void*>(part.there), reinterpret_cast<void*>(part.low),
         part.high - part.low);
  part.region->written = true;
}
