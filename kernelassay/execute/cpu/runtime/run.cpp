#include "run.h"

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>

#include <cstdio>
#include <cstring>

#include "checks.h"
#include "warp.h"

extern "C" int64_t cu_fuel_left;
extern "C" Index3 cu_threadIdx, cu_blockIdx, cu_blockDim, cu_gridDim;

Result result;

namespace {

sigjmp_buf run_exit;
int64_t fuel_given;
uint32_t epoch = 1;  // the latest epoch handed out

struct Image {
  uintptr_t low, high;
};
Image image;

void note_first(FindingKind kind, Place place, const Region* region, uintptr_t address, size_t n) {
  if (region) {
    place.offset = int64_t(address - region->low);
    place.size = uint32_t(n);
    if (region->role == kSharedArray)
      memcpy(place.array, region->name, sizeof place.array);
    else
      place.region = int32_t(region - regions);
  }
  result.first[kind] = place;
}

// Every epoch in use is far below the top; when it is not, forget all shadows and start again.
void renew_epochs() {
  if (epoch < 0xC0000000u) return;
  for (Region& region : regions)
    if (region.live) memset(region.records, 0, (region.capacity + 4) * sizeof(Record));
  for (Region& region : shared_regions)
    memset(region.records, 0, kMaxSharedBytes * sizeof(Record));
  epoch = 1;
}

void begin_run(int64_t fuel) {
  result = Result{};
  cu_fuel_left = fuel_given = fuel;
  renew_epochs();
  checks_begin_run();
  now.run_first = ++epoch;
  running = nullptr;
  for (Region& region : regions) {
    if (!region.live) continue;
    region.written = false;
    const bool filled = region.role == kOperand || region.role == kUpdated;
    region.initialised_since = filled ? 0 : now.run_first;
    if (region.role == kScratch) fill_pattern(region.low, region.high);
  }
}

void run_memset(const Step& step) {
  const uintptr_t low = reinterpret_cast<uintptr_t>(step.memset.target);
  Region* region = region_of(low);
  if (!region || low < region->low || step.memset.nbytes > region->high - low) {
    if (step.memset.nbytes) fault(kLaunchFailure, "cudaMemset reaches past its buffer", low);
    return;
  }
  if (!step.memset.nbytes) return;
  memset(step.memset.target, int(step.memset.value), step.memset.nbytes);
  region->written = region->written || region->role == kOperand;
  const uintptr_t first = low - region->low, end = first + step.memset.nbytes;
  if ((first | end) & ((uintptr_t{1} << region->shift) - 1)) refine(*region, 0);
  for (uintptr_t g = first >> region->shift; g < end >> region->shift; g++) {
    region->records[g].write_epoch = now.run_first;
    region->records[g].read_epoch = 0;
  }
}

void run_steps(const char* plan, uint32_t count) {
  for (uint32_t number = 0; number < count; number++) {
    const Step& step = *reinterpret_cast<const Step*>(plan);
    plan += sizeof(Step);
    launch_number(number);
    if (step.kind == 1) {
      run_memset(step);
      continue;
    }
    launch_run(step, reinterpret_cast<const Slot*>(plan));
    if (packed_owed) packed_deliver();
    plan += step.launch.slots * sizeof(Slot);
  }
}

}  // namespace

Region* region_of(uintptr_t address) {
  if (address - shared_base < kSharedSpan)
    return &shared_regions[(address - shared_base) >> kSharedShift];
  if (address - global_base < kGlobalSpan)
    return &regions[(address - global_base) >> kWindowShift];
  return nullptr;
}

void now_begin_launch() { now.launch_first = epoch + 1; }
void now_begin_block() { now.epoch = now.block_first = ++epoch; }
void now_next_epoch() { now.epoch = ++epoch; }
void now_thread(int number) {
  now.thread = uint32_t(number);
  now.warp = now.thread / 32;
  now.lane = now.thread % 32;
  now.clock = warp_clocks(number, &now.own_clock);
}

void report(FindingKind kind, const Region* region, uintptr_t address, size_t n, int other_thread,
            uint64_t line) {
  if (result.counts[kind]++) return;
  Place place = block_place();
  place.other_thread = other_thread;
  place.line = line;
  note_first(kind, place, region, address, n);
}

void report_at(FindingKind kind, const Thread& thread, uint64_t line) {
  if (result.counts[kind]++) return;
  Place place = block_place();
  place.thread = thread.index;
  place.line = line;
  note_first(kind, place, nullptr, 0, 0);
}

void fault(Outcome outcome, const char* reason, uintptr_t address, size_t n) {
  result.outcome = outcome;
  snprintf(result.reason, sizeof result.reason, "%s", reason);
  result.in_kernel = running != nullptr;
  result.fault = block_place();
  const Region* region = address ? region_of(address) : nullptr;
  if (region && region->live) {  // an offset from nothing would be an address, of this process only
    result.fault.offset = int64_t(address - region->low);
    result.fault.size = uint32_t(n);
    if (region->role == kSharedArray)
      memcpy(result.fault.array, region->name, sizeof region->name);
    else
      result.fault.region = int32_t(region - regions);
  }
  siglongjmp(run_exit, 1);
}

bool launch_owns_data(uintptr_t address, size_t n, bool writes) {
  return !writes && address >= image.low && address + n <= image.high;
}

namespace {
struct Search {
  uintptr_t base;
  Image found;
};
int note_segments(dl_phdr_info* info, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  if (info->dlpi_addr != search.base) return 0;
  search.found.low = ~uintptr_t{0};
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    const uintptr_t low = info->dlpi_addr + header.p_vaddr, high = low + header.p_memsz;
    if (low < search.found.low) search.found.low = low;
    if (high > search.found.high) search.found.high = high;
  }
  return 1;
}
}  // namespace

extern "C" {

int ka_start() { return memory_map() && stacks_map(); }

void* ka_open(const char* path, char* error, size_t error_bytes) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) snprintf(error, error_bytes, "%s", dlerror());
  return handle;
}
void ka_close(void* handle) { dlclose(handle); }
const void* ka_symbol(void* handle, const char* name) { return dlsym(handle, name); }

// The address range of an opened library.
int ka_range(void* handle, uint64_t* range) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map)) return 0;
  Search search{map->l_addr, {}};
  if (!dl_iterate_phdr(note_segments, &search)) return 0;
  range[0] = search.found.low;
  range[1] = search.found.high;
  return 1;
}

int ka_map(uint64_t nbytes, int role, int right_aligned) {
  return region_map(nbytes, Role(role), right_aligned != 0);
}
void ka_unmap(int window) { region_unmap(window); }
uint64_t ka_address(int window) { return regions[window].low; }
void ka_pack(const int32_t* windows, uint32_t count) { packed_set(windows, count); }
int ka_written(int window) { return regions[window].written; }
const Result* ka_result() { return &result; }

// Run a plan: `count` steps packed as in abi.h. Returns nonzero if there is anything to read in the
// result beyond fuel: an outcome other than ok, or a finding. `pattern` is what memory that nothing
// has written holds.
int ka_run(const char* plan, uint32_t count, int64_t fuel, uint32_t order, uint64_t seed,
           uint32_t pattern, const uint64_t* image_range, uint32_t backstop_ms) {
  stated_pattern = pattern;
  image.low = image_range[0];
  image.high = image_range[1];
  begin_run(fuel);
  order_set(Order(order), seed);
  faults_install(backstop_ms);
  if (!sigsetjmp(run_exit, 0)) run_steps(plan, count);
  faults_restore();
  packed_forget();
  running = nullptr;
  const int64_t left = cu_fuel_left < 0 ? 0 : cu_fuel_left;
  result.fuel_used = fuel_given - left;
  bool noteworthy = result.outcome != kOk;
  for (uint64_t count_of_kind : result.counts) noteworthy = noteworthy || count_of_kind;
  for (const Region& region : regions) noteworthy = noteworthy || (region.live && region.written);
  return noteworthy;
}
int64_t ka_fuel_used() { return result.fuel_used; }

void cu_fuel_out() { fault(kTimeout, "fuel used up"); }
void cu_trap() { fault(kCrash, "the kernel trapped"); }
}
