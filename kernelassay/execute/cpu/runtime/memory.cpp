#include "memory.h"

#include <sys/mman.h>

#include <cstring>

uintptr_t global_base, shared_base;
Region regions[kWindows], shared_regions[kSharedWindows];
uint32_t stated_pattern;
bool packed_owed;

namespace {
constexpr size_t kPage = 4096;
constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

uintptr_t reserve(size_t span, size_t alignment) {
  void* area = mmap(nullptr, span + alignment, PROT_NONE, kFlags, -1, 0);
  if (area == MAP_FAILED) return 0;
  return (reinterpret_cast<uintptr_t>(area) + alignment - 1) & ~(alignment - 1);
}

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// The buffers of packed surroundings, and where each starts in their common allocation.
struct Packed {
  Region* region;
  uintptr_t start;
};
Packed packed[kWindows];
uint32_t packed_count;

struct Owed {
  const Region* region;
  uintptr_t low, high;
};
Owed owed;

// The buffer that `address`, outside of `region`, lies in, and where; null where there is none.
Region* packed_owner(const Region& region, uintptr_t address, char** there) {
  const uintptr_t at = packed[region.packed].start + (address - region.low);
  for (uint32_t i = 0; i < packed_count; i++) {
    Region& other = *packed[i].region;
    const uintptr_t offset = at - packed[i].start;
    if (offset >= other.high - other.low) continue;
    *there = reinterpret_cast<char*>(other.low + offset);
    return &other;
  }
  return nullptr;
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

void packed_set(const int32_t* windows, uint32_t count) {
  packed_count = count;
  uintptr_t end = 0;
  for (uint32_t i = 0; i < count; i++) {
    Region& region = regions[windows[i]];
    region.packed = int(i);
    packed[i] = {&region, end};
    end += round_up(region.high - region.low, 16);
  }
}

void packed_forget() {
  for (Region& region : regions) region.packed = -1;
  packed_owed = false;
}

void packed_show(const Region& region, uintptr_t low, uintptr_t high) {
  fill_pattern(low, high);
  if (region.packed < 0) return;
  for (char* byte = reinterpret_cast<char*>(low); byte < reinterpret_cast<char*>(high); byte++) {
    char* there;
    if (packed_owner(region, reinterpret_cast<uintptr_t>(byte), &there)) *byte = *there;
  }
}

void packed_owe(const Region& region, uintptr_t address, size_t n) {
  if (region.packed < 0) return;
  owed = {&region, address, address + n};
  packed_owed = true;
}

void packed_deliver() {
  packed_owed = false;
  for (uintptr_t address = owed.low; address < owed.high; address++) {
    if (address >= owed.region->low && address < owed.region->high) continue;
    char* there;
    Region* owner = packed_owner(*owed.region, address, &there);
    if (!owner) continue;
    *there = *reinterpret_cast<const char*>(address);
    owner->written = true;
  }
}
