// Warp operations: lanes of a mask meet, exchange values, and learn of each other's accesses.
//
// A meeting is keyed by its mask, so several groups of one warp can meet at the same time. It is
// complete when every lane of the mask that exists has arrived or is done. Lanes of the mask beyond
// the block's last thread do not exist and are not waited for. A lane that is done, but named, is a
// warp-divergence finding; so are lanes that meet at different operations, and a lane that does not
// name itself. Reading from a lane that did not arrive gives the reader's own value.
#include <cstring>

#include "block.h"
#include "checks.h"
#include "run.h"
#include "warp.h"

namespace {

constexpr int kWarps = kMaxThreads / 32;

struct Meeting {
  uint32_t mask, arrived;
  WarpOp op;
  uint64_t site;
  uint64_t values[32];
  uint8_t sources[32];  // for a shuffle: the lane each lane reads
};

struct Warp {
  uint32_t exists, done;
  int meeting_count;
  Meeting meetings[32];
  // Vector clocks. What a lane knows of another's accesses, up to which of its clocks, is in its row:
  // `rows[lane]` for the lanes in `divided`, else `common`, which all lanes share after a meeting of
  // the whole warp.
  uint32_t own[32];
  uint32_t common[32], rows[32][32];
  uint32_t divided;
};
Warp warps[kWarps];

uint32_t* row_of(Warp& warp, int lane) {
  return warp.divided >> lane & 1 ? warp.rows[lane] : warp.common;
}

void reset_clocks(Warp& warp) {
  memset(warp.common, 0, sizeof warp.common);
  for (uint32_t& clock : warp.own) clock = 1;
  warp.divided = 0;
}

void raise(uint32_t* row, const uint32_t* other) {
  for (int k = 0; k < 32; k++) row[k] = row[k] > other[k] ? row[k] : other[k];
}

// Everybody who met knows what anybody of them knew and did; their later accesses carry a later
// clock, the same for all of them.
void join_clocks(Warp& warp, uint32_t lanes) {
  uint32_t joined[32];
  memcpy(joined, warp.common, sizeof joined);
  if (warp.divided & lanes) {
    if ((warp.divided & lanes) == lanes) memset(joined, 0, sizeof joined);
    for (uint32_t left = warp.divided & lanes; left; left &= left - 1)
      raise(joined, warp.rows[__builtin_ctz(left)]);
  }
  uint32_t latest = 0;
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    joined[lane] = warp.own[lane];
    if (warp.own[lane] > latest) latest = warp.own[lane];
  }
  for (uint32_t left = lanes; left; left &= left - 1) warp.own[__builtin_ctz(left)] = latest + 1;
  if (lanes == (warp.exists & ~warp.done)) {
    memcpy(warp.common, joined, sizeof joined);
    warp.divided = 0;
    return;
  }
  for (uint32_t left = lanes; left; left &= left - 1)
    memcpy(warp.rows[__builtin_ctz(left)], joined, sizeof joined);
  warp.divided |= lanes;
}

uint64_t reduce(const Meeting& meeting) {
  bool first = true;
  uint64_t total = 0;
  for (uint32_t left = meeting.arrived; left; left &= left - 1) {
    const uint64_t value = meeting.values[__builtin_ctz(left)];
    const int32_t a = int32_t(total), b = int32_t(value);
    if (first) {
      total = value;
      first = false;
      continue;
    }
    switch (meeting.op) {
      case WarpOp::kAdd: total = uint32_t(total + value); break;
      case WarpOp::kAnd: total &= value; break;
      case WarpOp::kOr: total |= value; break;
      case WarpOp::kXor: total ^= value; break;
      case WarpOp::kMinSigned: total = uint32_t(a < b ? a : b); break;
      case WarpOp::kMaxSigned: total = uint32_t(a > b ? a : b); break;
      case WarpOp::kMinUnsigned: total = total < value ? total : value; break;
      case WarpOp::kMaxUnsigned: total = total > value ? total : value; break;
      default: break;
    }
  }
  return total;
}

uint64_t lanes_with(const Meeting& meeting, uint64_t value) {
  uint64_t lanes = 0;
  for (uint32_t left = meeting.arrived; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    if (meeting.values[lane] == value) lanes |= uint64_t{1} << lane;
  }
  return lanes;
}

uint64_t lane_result(const Meeting& meeting, int lane, uint64_t common) {
  switch (meeting.op) {
    case WarpOp::kSync: return 0;
    case WarpOp::kShuffle: {
      const int source = meeting.sources[lane];
      return meeting.values[meeting.arrived >> source & 1 ? source : lane];
    }
    case WarpOp::kMatch: return lanes_with(meeting, meeting.values[lane]);
    default: return common;
  }
}

void complete(Warp& warp, Meeting& meeting, int warp_number) {
  const uint32_t absent = meeting.mask & warp.exists & ~meeting.arrived;
  if (absent)
    report_at(kWarpDivergence, threads[warp_number * 32 + __builtin_ctz(absent)],
              meeting.site >> 32);
  join_clocks(warp, meeting.arrived);
  uint64_t common = 0;
  if (meeting.op == WarpOp::kBallot) common = lanes_with(meeting, 1);
  if (meeting.op >= WarpOp::kAdd) common = reduce(meeting);
  for (uint32_t left = meeting.arrived; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    Thread& thread = threads[warp_number * 32 + lane];
    thread.warp_result = lane_result(meeting, lane, common);
    if (thread.state != State::kInWarp) continue;  // the last to arrive is still running
    thread.state = State::kReady;
    enqueue(thread);
  }
  const Meeting& last = warp.meetings[--warp.meeting_count];
  if (&last != &meeting) meeting = last;
}

bool is_complete(const Warp& warp, const Meeting& meeting) {
  return !(meeting.mask & warp.exists & ~meeting.arrived & ~warp.done);
}

Meeting& join_meeting(Warp& warp, uint32_t mask, WarpOp op, uint64_t site) {
  for (int i = 0; i < warp.meeting_count; i++) {
    Meeting& meeting = warp.meetings[i];
    if (meeting.mask != mask) continue;
    if (meeting.site != site) report_at(kWarpDivergence, *running, site >> 32);
    return meeting;
  }
  Meeting& meeting = warp.meetings[warp.meeting_count++];
  meeting.mask = mask;
  meeting.arrived = 0;
  meeting.op = op;
  meeting.site = site;
  return meeting;
}

}  // namespace

void warps_begin_block() {
  for (int w = 0; w * 32 < thread_count; w++) {
    Warp& warp = warps[w];
    const int lanes = thread_count - w * 32;
    warp.exists = lanes >= 32 ? ~0u : (1u << lanes) - 1;
    warp.done = 0;
    warp.meeting_count = 0;
    reset_clocks(warp);
  }
}

const uint32_t* warp_clocks(int thread, uint32_t* own) {
  Warp& warp = warps[thread / 32];
  *own = warp.own[thread % 32];
  return row_of(warp, thread % 32);
}

void warp_lane_done(const Thread& thread) {
  Warp& warp = warps[thread.number / 32];
  warp.done |= 1u << thread.number % 32;
  for (int i = warp.meeting_count; i-- > 0;)
    if (is_complete(warp, warp.meetings[i])) complete(warp, warp.meetings[i], thread.number / 32);
}

extern "C" uint64_t cu_warp(uint32_t mask, uint64_t value, int source, int op, uint64_t site) {
  Thread& self = *running;
  const int lane = self.number % 32;
  Warp& warp = warps[self.number / 32];
  flush_pending(self.number);
  if (!(mask >> lane & 1)) {
    report_at(kWarpDivergence, self, site >> 32);
    return value;
  }
  Meeting& meeting = join_meeting(warp, mask, WarpOp(op), site);
  meeting.values[lane] = value;
  meeting.sources[lane] = uint8_t(source & 31);
  meeting.arrived |= 1u << lane;
  if (is_complete(warp, meeting)) {
    complete(warp, meeting, self.number / 32);
    now_thread(self.number);  // its clocks moved
  } else {
    self.state = State::kInWarp;
    self.site = site;
    wait_for_turn();
  }
  return self.warp_result;
}

extern "C" int cu_lane() { return running->number % 32; }
