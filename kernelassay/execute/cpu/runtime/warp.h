// Warp operations, as the scheduler and the images see them.
#pragma once
#include <cstdint>

// Order is the contract with shim/warp.h.
enum class WarpOp : int {
  kSync,
  kShuffle,
  kBallot,
  kMatch,
  kAdd,
  kAnd,
  kOr,
  kXor,
  kMinSigned,
  kMaxSigned,
  kMinUnsigned,
  kMaxUnsigned
};

// What a thread knows of its warp's lanes (shadow.h), and its own clock.
const uint32_t* warp_clocks(int thread, uint32_t* own);
