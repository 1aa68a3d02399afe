// Where kernels may touch memory: global buffers and shared arrays, each alone in its window.
#pragma once
#include <cstddef>
#include <cstdint>

#include "shadow.h"

enum Role : uint8_t { kOperand, kOutput, kScratch, kUpdated, kSharedArray };

// A buffer or shared array with its shadow. Bytes of the window outside [low, high) are slack:
// mapped, but any access there is a finding.
struct Region {
  uintptr_t low, high;
  Record* records;             // one per granule of 1 << shift bytes
  uint32_t initialised_since;  // bytes last written in an older epoch count as uninitialised
  uint8_t shift;
  Role role;
  bool live, written;
  size_t capacity;  // bytes the mapping was made for
  int packed = -1;  // its place in packed surroundings
  const void* key;  // of a shared array: its declaration
  char name[32];
};

constexpr int kWindows = 256;
// 64 GiB: from the middle of a window, a 32-bit index times 8 bytes stays inside it, so that the
// outcome of a wild access does not depend on which other buffers exist.
constexpr int kWindowShift = 36;
constexpr size_t kSlack = 1 << 20;
constexpr int kSharedWindows = 64;
constexpr int kSharedShift = 22;
constexpr uintptr_t kSharedSpan = uintptr_t{kSharedWindows} << kSharedShift;
// Shared memory has 32-bit addresses: what `s[threadIdx.x - 1]` means in thread 0 lies just before s,
// not 16 GiB behind it. Addresses up to here are read modulo 2^32 (shared_wrapped).
constexpr uintptr_t kSharedReach = uintptr_t{1} << 42;
constexpr uintptr_t kGlobalSpan = uintptr_t{kWindows} << kWindowShift;
constexpr size_t kMaxSharedBytes = 227 * 1024;    // a block on sm_90, static plus dynamic
constexpr size_t kMaxStaticShared = 48 * 1024;

// What uninitialised memory and out-of-bounds reads hold in this run, by address modulo 4.
extern uint32_t stated_pattern;

extern uintptr_t global_base KA_HIDDEN, shared_base KA_HIDDEN;
extern Region regions[kWindows] KA_HIDDEN, shared_regions[kSharedWindows] KA_HIDDEN;

bool memory_map();
void fill_pattern(uintptr_t low, uintptr_t high);
// Returns the window's number, or -1 if none is free or memory is short.
int region_map(size_t nbytes, Role role, bool right_aligned);
void region_unmap(int window);
// Packed surroundings: the buffers of `windows` lie one behind the other, each at a multiple of 16
// bytes. They lie alone until this is called, and after a run.
void packed_set(const int32_t* windows, uint32_t count);
void packed_forget();
// Bytes [low, high) outside of `region`: fill them with what lies there.
void packed_show(const Region& region, uintptr_t low, uintptr_t high);
// A kernel is about to write n bytes, some outside: those reach their owners at packed_deliver.
void packed_owe(const Region& region, uintptr_t address, size_t n);
extern bool packed_owed KA_HIDDEN;
void packed_deliver();

// Shared arrays of the running launch. Window 0 is the dynamic array.
void shared_begin_launch(size_t dynamic_bytes);
void shared_begin_block();
// The shared array outside of which `address`, taken modulo 2^32, lies; null if there is none. Then
// n bytes at `address` may be touched, and `wrapped` is what it stands for.
Region* shared_wrapped(uintptr_t address, size_t n, uintptr_t* wrapped);
