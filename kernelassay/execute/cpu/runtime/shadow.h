// The shadow of memory: who last wrote and read each granule, and when.
//
// Time is counted in *epochs*: one starts with every block and at every released block barrier,
// and the numbers only grow for the life of the process. So an epoch tells the block, the launch
// and the run it belongs to, and no shadow need ever be cleared between runs. Within one epoch only
// warp operations order accesses: each lane keeps a vector clock over its warp.
#pragma once
#include <cstdint>

// For what the hooks touch at every access: without it each use of a variable of a shared library
// goes through the global offset table.
#define KA_HIDDEN __attribute__((visibility("hidden")))

struct Record {
  uint32_t write_epoch, write_clock;  // clock: the writer's own, at that access
  uint32_t read_epoch, read_clock;    // clock: the smallest of the readers in read_lanes
  uint32_t read_lanes;                // readers not ordered before one another, of reader's warp
  uint16_t writer;                    // thread in block, plus kAtomicWrite
  uint16_t reader;                    // last reader, plus the three flags below
};

constexpr uint16_t kThreadBits = 0x3FF;
constexpr uint16_t kAtomicWrite = 0x8000;  // the last write was an atomic
constexpr uint16_t kManyWarps = 0x8000;    // several warps read it in read_epoch
constexpr uint16_t kManyBlocks = 0x4000;   // an earlier block of this launch read it, too
constexpr uint16_t kVolatileRead = 0x2000;  // all reads in read_epoch were volatile

// The running thread and the borders of its block, launch and run on the epoch axis.
struct Now {
  uint32_t epoch, block_first, launch_first, run_first;
  uint32_t thread, warp, lane;
  uint32_t own_clock;
  const uint32_t* clock;  // per lane of its warp: the latest access of it that this lane knows of
  bool acquired;          // see release_acquire() in checks.cpp
};
extern Now now KA_HIDDEN;

// Enter an access of the running thread.
inline void note_read(Record& r, bool global, uint16_t volatile_read) {
  const uint32_t clock = now.own_clock;
  if (r.read_epoch != now.epoch) {
    const bool block_before = global && r.read_epoch >= now.launch_first &&
                              (r.read_epoch < now.block_first || (r.reader & kManyBlocks));
    r.read_epoch = now.epoch;
    r.read_clock = clock;
    r.read_lanes = 1u << now.lane;
    r.reader = uint16_t(now.thread | volatile_read | (block_before ? kManyBlocks : 0));
    return;
  }
  const uint32_t reader = r.reader & kThreadBits;
  uint16_t flags = r.reader & ~kThreadBits;
  if (!volatile_read) flags &= ~kVolatileRead;  // one plain reader makes them all plain
  if (reader >> 5 != now.warp) {
    flags |= kManyWarps;
    r.read_clock = clock;
    r.read_lanes = 1u << now.lane;
  } else if (reader == now.thread ? r.read_lanes == 1u << now.lane
                                  : now.clock[reader & 31] >= r.read_clock) {
    // The readers so far are ordered before this read.
    r.read_clock = clock;
    r.read_lanes = 1u << now.lane;
  } else {
    if (clock < r.read_clock) r.read_clock = clock;
    r.read_lanes |= 1u << now.lane;
  }
  r.reader = uint16_t(now.thread | flags);
}

inline void note_write(Record& r, bool atomic) {
  r.write_epoch = now.epoch;
  r.write_clock = now.own_clock;
  r.writer = uint16_t(now.thread | (atomic ? kAtomicWrite : 0));
}
