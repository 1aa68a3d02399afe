// One block of a launch: its threads, and how they take turns.
//
// The states of a thread, and every transition between them:
//
//   kNew       --first turn-->                                   kReady (running)
//   kReady     --__syncthreads-->                                kAtBarrier
//   kReady     --warp operation, lanes of the mask missing-->    kInWarp
//   kReady     --returns-->                                      kDone
//   kAtBarrier --every thread is at a barrier or done-->         kReady, in the order of the run
//   kInWarp    --the last lane of the mask arrives or is done--> kReady, in lane order
//
// A running thread keeps the processor until it leaves kReady. The queue holds the kNew and kReady
// threads that wait for their turn. When it is empty and threads are left but not all of them at a
// barrier, no thread can ever go on: a deadlock.
#pragma once
#include "abi.h"
#include "fiber.h"

enum class State : uint8_t { kNew, kReady, kAtBarrier, kInWarp, kDone };

struct Thread {
  Context context;
  Index3 index;
  int number;  // in the block; number / 32 is the warp
  int stack;
  State state;
  uint64_t site;         // of the barrier or warp operation it waits at
  uint64_t warp_result;  // of the last warp operation
};

enum class Order : uint32_t { kForward, kReverse, kSeeded };

extern Thread threads[kMaxThreads];
extern int thread_count;
extern Thread* running;

void order_set(Order order, uint64_t seed);
// Run all blocks of one launch; returns when every thread is done. Faults leave by `fault`.
void launch_run(const Step& step, const Slot* slots);
// Suspend `running` (its state is set already) until it is kReady and its turn comes.
void wait_for_turn();
// Append a thread that became kReady.
void enqueue(Thread& thread);
// The running thread and block, as a Place.
Place block_place();

// Warp operations (warp.cpp).
void warps_begin_block();
void warp_lane_done(const Thread& thread);
