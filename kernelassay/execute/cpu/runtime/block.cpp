#include "block.h"

#include <cstdio>

#include "checks.h"
#include "run.h"

extern "C" {
Index3 cu_threadIdx, cu_blockIdx, cu_blockDim, cu_gridDim;
int64_t cu_fuel_left;
}

Thread threads[kMaxThreads];
int thread_count;
Thread* running;

namespace {

Context main_context;
const KernelEntry* kernel;
const Slot* arguments;
uint32_t step_number;

int alive, at_barrier;
int queue[kMaxThreads], queue_head, queue_length;
int turn_order[kMaxThreads];
int free_stacks[kMaxThreads], free_stack_count;

Order order_kind;
uint64_t random_state;

// What the last released barrier saw, for __syncthreads_count, _and, _or.
int arrived_true, arrived_all, released_true, released_all;

uint64_t next_random() {  // xorshift64
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

void draw_turn_order() {
  for (int i = 0; i < thread_count; i++)
    turn_order[i] = order_kind == Order::kReverse ? thread_count - 1 - i : i;
  if (order_kind != Order::kSeeded) return;
  for (int i = thread_count - 1; i > 0; i--) {
    const int k = int(next_random() % uint64_t(i + 1));
    const int swapped = turn_order[i];
    turn_order[i] = turn_order[k];
    turn_order[k] = swapped;
  }
}

void become(Thread& thread) {
  running = &thread;
  cu_threadIdx = thread.index;
  now_thread(thread.number);
}

void release_barrier() {
  uint64_t site = 0;
  bool diverged = false;
  draw_turn_order();
  for (int i = 0; i < thread_count; i++) {
    Thread& thread = threads[turn_order[i]];
    if (thread.state != State::kAtBarrier) continue;
    if (site && site != thread.site) {
      if (!diverged) report_at(kBarrierDivergence, thread, thread.site >> 32);
      diverged = true;
    }
    site = thread.site;
    thread.state = State::kReady;
    enqueue(thread);
  }
  released_true = arrived_true;
  released_all = arrived_all;
  at_barrier = arrived_true = arrived_all = 0;
  now_next_epoch();
}

// The thread whose turn is next; null when all are done.
Thread* next_thread() {
  if (!queue_length) {
    if (!alive) return nullptr;
    if (at_barrier != alive) {
      char reason[100];
      snprintf(reason, sizeof reason,
               "deadlock: %d threads wait at a block barrier, %d in a warp operation", at_barrier,
               alive - at_barrier);
      fault(kTimeout, reason);
    }
    release_barrier();
  }
  Thread& thread = threads[queue[queue_head]];
  queue_head = (queue_head + 1) % kMaxThreads;
  queue_length--;
  return &thread;
}

void thread_main();

void give_stack(Thread& thread) {
  thread.stack = free_stacks[--free_stack_count];
  context_start(thread.context, thread.stack, thread_main);
}

// Runs threads that have not started, one after the other on one stack for as long as they do not
// wait: a kernel without barriers needs one stack and no switch.
void thread_main() {
  for (;;) {
    if (--cu_fuel_left < 0) fault(kTimeout, "fuel used up");
    kernel->call(arguments);
    Thread& self = *running;
    flush_pending(self.number);
    self.state = State::kDone;
    alive--;
    warp_lane_done(self);
    Thread* next = next_thread();
    if (next && next->state == State::kNew) {
      next->state = State::kReady;
      next->stack = self.stack;
      become(*next);
      continue;
    }
    free_stacks[free_stack_count++] = self.stack;
    Context& target = next ? next->context : main_context;
    if (next) become(*next);
    context_switch(self.context, target);
    __builtin_unreachable();
  }
}

void run_block() {
  shared_begin_block();
  warps_begin_block();
  checks_begin_block();
  draw_turn_order();
  queue_head = 0;
  queue_length = alive = thread_count;
  at_barrier = arrived_true = arrived_all = 0;
  for (int i = 0; i < thread_count; i++) {
    queue[i] = turn_order[i];
    threads[i].state = State::kNew;
  }
  Thread* first = next_thread();
  first->state = State::kReady;
  give_stack(*first);
  become(*first);
  context_switch(main_context, first->context);
}

uint64_t gcd(uint64_t a, uint64_t b) { return b ? gcd(b, a % b) : a; }

}  // namespace

void order_set(Order order, uint64_t seed) {
  order_kind = order;
  random_state = seed * 0x9E3779B97F4A7C15u + 88172645463325252u;
  if (!random_state) random_state = 1;
}

void enqueue(Thread& thread) {
  queue[(queue_head + queue_length++) % kMaxThreads] = thread.number;
}

void wait_for_turn() {
  Thread& self = *running;
  Thread* next = next_thread();
  if (next == &self) return;
  if (next->state == State::kNew) {
    next->state = State::kReady;
    give_stack(*next);
  }
  become(*next);
  context_switch(self.context, next->context);
}

Place block_place() {
  Place place{};
  place.step = step_number;
  place.block = cu_blockIdx;
  place.thread = running ? running->index : Index3{};
  place.region = place.other_thread = -1;
  return place;
}

void launch_run(const Step& step, const Slot* slots) {
  kernel = step.launch.kernel;
  arguments = slots;
  const uint32_t* grid = step.launch.grid;
  const uint32_t* block = step.launch.block;
  cu_gridDim = {grid[0], grid[1], grid[2]};
  cu_blockDim = {block[0], block[1], block[2]};
  thread_count = int(block[0] * block[1] * block[2]);
  for (int i = 0; i < thread_count; i++) {
    const uint32_t n = uint32_t(i);
    threads[i].number = i;
    threads[i].index = {n % block[0], n / block[0] % block[1], n / (block[0] * block[1])};
  }
  for (free_stack_count = 0; free_stack_count < kMaxThreads; free_stack_count++)
    free_stacks[free_stack_count] = kMaxThreads - 1 - free_stack_count;
  shared_begin_launch(step.launch.shared_bytes);
  now_begin_launch();
  const uint64_t blocks = uint64_t(grid[0]) * grid[1] * grid[2];
  uint64_t stride = 1, start = 0;  // a seeded order visits start, start + stride, ... modulo blocks
  if (order_kind == Order::kSeeded) {
    start = next_random() % blocks;
    do stride = next_random() % blocks + 1;
    while (gcd(stride, blocks) != 1);
  }
  uint64_t at = order_kind == Order::kReverse ? blocks - 1 : start;
  for (uint64_t k = 0; k < blocks; k++) {
    cu_blockIdx = {uint32_t(at % grid[0]), uint32_t(at / grid[0] % grid[1]),
                   uint32_t(at / grid[0] / grid[1])};
    now_begin_block();
    run_block();
    if (order_kind == Order::kReverse)
      at--;
    else
      at = (at + stride) % blocks;
  }
  running = nullptr;
}

void launch_number(uint32_t step) { step_number = step; }

extern "C" void cu_barrier(uint64_t site) {
  Thread& self = *running;
  flush_pending(self.number);
  self.state = State::kAtBarrier;
  self.site = site;
  at_barrier++;
  arrived_all++;
  wait_for_turn();
}

// __syncthreads_count/_and/_or: `what` 0 the number of true predicates, 1 all, 2 any.
extern "C" int cu_barrier_vote(uint64_t site, int predicate, int what) {
  arrived_true += predicate != 0;
  cu_barrier(site);
  if (what == 0) return released_true;
  return what == 1 ? released_true == released_all : released_true != 0;
}
