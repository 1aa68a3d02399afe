// Shared arrays: each declaration of the running launch gets its own window when a thread first
// reaches it, filled with the pattern anew for every block. Window 0 is the dynamic array.
#include <sys/mman.h>

#include <cstdio>
#include <cstring>

#include "checks.h"
#include "memory.h"

namespace {

int arrays;
size_t static_bytes, dynamic_bytes;

Region& open_array(const void* key, size_t nbytes, const char* name) {
  if (arrays == kSharedWindows) fault(kLaunchFailure, "too many shared arrays");
  Region& region = shared_regions[arrays];
  const uintptr_t middle =
      shared_base + (uintptr_t(arrays) << kSharedShift) + (uintptr_t{1} << (kSharedShift - 1));
  arrays++;
  region.low = middle;
  region.high = middle + nbytes;
  region.shift = 2;
  region.role = kSharedArray;
  region.live = true;
  region.capacity = nbytes;
  region.key = key;
  region.initialised_since = now.block_first;
  snprintf(region.name, sizeof region.name, "%s", name);
  return region;
}

// Pages that stand for wrapped addresses, closed again before the next launch: what an address does
// must not depend on what ran before, nor the process run out of mappings.
constexpr uintptr_t kPage = 4096;
constexpr int kOpenPages = 1024;
uintptr_t open_pages[kOpenPages];
int open_page_count;

bool open_page(uintptr_t page) {
  for (int i = open_page_count; i-- > 0;)
    if (open_pages[i] == page) return true;
  if (open_page_count == kOpenPages) return false;
  if (mprotect(reinterpret_cast<void*>(page), kPage, PROT_READ | PROT_WRITE)) return false;
  open_pages[open_page_count++] = page;
  return true;
}

void close_pages() {
  for (; open_page_count; open_page_count--) {
    void* page = reinterpret_cast<void*>(open_pages[open_page_count - 1]);
    madvise(page, kPage, MADV_DONTNEED);
    mprotect(page, kPage, PROT_NONE);
  }
}

}  // namespace

void shared_begin_launch(size_t dynamic) {
  close_pages();
  for (int i = 0; i < arrays; i++) {
    shared_regions[i].low = shared_regions[i].high = 0;
    shared_regions[i].live = false;
  }
  arrays = 0;
  static_bytes = 0;
  dynamic_bytes = dynamic;
  open_array(nullptr, dynamic, "dynamic");
}

void shared_begin_block() {
  for (int i = 0; i < arrays; i++) {
    fill_pattern(shared_regions[i].low, shared_regions[i].high);
    shared_regions[i].initialised_since = now.block_first;
  }
}

Region* shared_wrapped(uintptr_t address, size_t n, uintptr_t* wrapped) {
  const uintptr_t offset = address - shared_base, low = uint32_t(offset);
  if (offset < kSharedSpan || offset >= kSharedReach - kPage || low >= kSharedSpan) return nullptr;
  Region& region = shared_regions[low >> kSharedShift];
  *wrapped = shared_base + low;
  if (!region.live || (*wrapped + n > region.low && *wrapped < region.high)) return nullptr;
  const uintptr_t first = address & ~(kPage - 1), last = (address + n - 1) & ~(kPage - 1);
  if (!open_page(first) || (last != first && !open_page(last))) return nullptr;
  return &region;
}

// `key` tells declarations apart (one per instantiation of a template).
extern "C" void* cu_shared_array(const void* key, size_t nbytes, const char* name) {
  for (int i = 1; i < arrays; i++)
    if (shared_regions[i].key == key) return reinterpret_cast<void*>(shared_regions[i].low);
  static_bytes += nbytes;
  if (static_bytes > kMaxStaticShared || static_bytes + dynamic_bytes > kMaxSharedBytes)
    fault(kLaunchFailure, "more shared memory than a block can have");
  Region& region = open_array(key, nbytes, name);
  fill_pattern(region.low, region.high);
  return reinterpret_cast<void*>(region.low);
}

extern "C" void* cu_dyn_smem() {
  return reinterpret_cast<void*>(shared_base + (uintptr_t{1} << (kSharedShift - 1)));
}
