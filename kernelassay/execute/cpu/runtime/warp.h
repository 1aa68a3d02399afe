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

const uint32_t* warp_clock(int thread);
