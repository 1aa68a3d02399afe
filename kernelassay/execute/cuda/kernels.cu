// What the CUDA executor computes on the device beside the kernels under test: surveys of memory,
// and the graded verdict of kernelassay/oracle.py, over outputs that never leave the device.
//
// All results are sums and maxima of integers (a non-negative double orders like its bits), so they
// do not depend on the order of threads.

typedef unsigned int u32;
typedef unsigned long long u64;

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
__device__ u64 mixed(u64 x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ u64 warp_sum(u64 x) {
  for (int step = 16; step; step >>= 1) x += __shfl_down_sync(0xffffffffu, x, step);
  return x;
}

__device__ u64 warp_largest(u64 x) {
  for (int step = 16; step; step >>= 1) {
    const u64 other = __shfl_down_sync(0xffffffffu, x, step);
    x = other > x ? other : x;
  }
  return x;
}

__device__ void add(u64* to, u64 x) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0 && x) atomicAdd(to, x);
}

__device__ void raise(u64* to, u64 x) {
  x = warp_largest(x);
  if (threadIdx.x % 32 == 0 && x) atomicMax(to, x);
}

// A stretch of memory. `width` is that of its elements in bytes if it may hold unwritten ones, else
// 0; `expected` is the word it should be full of.
struct Segment {
  const u32* words;
  u64 count;
  u32 width;
  u32 expected;
};

const u32 kUnwritten = @POISON_WORD@;
const u32 kUnwrittenHalf = @POISON_HALF@;

// Per segment: two sums that identify its bits and their places, the number of unwritten elements,
// the number of words that are not the expected one. blockIdx.y is the segment.
extern "C" __global__ void ka_survey(const Segment* segments, u64* found) {
  const Segment segment = segments[blockIdx.y];
  u64 first = 0, second = 0, unwritten = 0, unlike = 0;
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < segment.count; i += stride) {
    const u32 word = segment.words[i];
    const u64 key = word + (i + 1) * 0x9e3779b97f4a7c15ull;
    first += mixed(key);
    second += mixed(key ^ 0xd1b54a32d192ed03ull);
    unlike += word != segment.expected;
    if (segment.width == 4) {
      unwritten += word == kUnwritten;
    } else if (segment.width == 2) {
      unwritten += ((word & 0xffffu) == kUnwrittenHalf) + ((word >> 16) == kUnwrittenHalf);
    } else if (segment.width == 8 && i % 2 == 0) {
      unwritten += word == kUnwritten && segment.words[i + 1] == kUnwritten;
    }
  }
  u64* row = found + 4 * blockIdx.y;
  add(row, first);
  add(row + 1, second);
  add(row + 2, unwritten);
  add(row + 3, unlike);
}

// The largest finite magnitude, as the bits of a float.
extern "C" __global__ void ka_largest(const u32* values, u64 count, u64* found) {
  u64 largest = 0;
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    const u32 bits = values[i] & 0x7fffffffu;
    if (bits < 0x7f800000u && bits > largest) largest = bits;
  }
  raise(found, largest);
}

// Fills the shared memory of the multiprocessors, which keeps what the last kernel left there.
extern "C" __global__ void ka_scrub(u32 pattern, u32 words) {
  extern __shared__ u32 memory[];
  for (u32 i = threadIdx.x; i < words; i += blockDim.x) ((volatile u32*)memory)[i] = pattern;
}

__device__ bool is_nan(double x) { return x != x; }
__device__ bool is_inf(double x) { return x - x != x - x && x == x; }

// The bits of a float as an integer in numeric order; both zeros are 0.
__device__ int ordered(float x) {
  const int bits = __float_as_int(x);
  return bits < 0 ? (-2147483647 - 1) - bits : bits;
}

__device__ u32 steps_between(float x, double target) {
  const int from = ordered(x), to = ordered((float)target);
  return from < to ? (u32)to - (u32)from : (u32)from - (u32)to;
}
__device__ u32 steps_between(double, double) { return 0; }

// Negative if and only if x > limit * y, exactly: fma rounds once and rounding keeps the sign (what
// is too small becomes -0). May be negative too if limit is infinite.
__device__ int room(double x, double limit, double y) {
  return (int)(__double_as_longlong(fma(limit, y, -x)) >> 32);
}

const double kMost = 1.7976931348623157e308;
// In falling order.
__constant__ double kLadder[6] = {@LADDER@};

// Whether x / y, rounded, is above a tolerance t, for y >= 1 and without dividing: whether x / y is
// above t + h, h being half of t's last place, as no quotient lies midway between two doubles (its
// product with y would have more bits than x). This is exact: h * y, as h is a power of two; and
// x - t * y is a multiple of the product of the last places of t and y, of which h * y is less than
// 2^52, so that it is rounded only where it is far above h * y.
__device__ bool is_past(double x, double y, double t) {
  const long long exponent = __double_as_longlong(t) & 0x7ff0000000000000ll;
  const double half = __longlong_as_double(exponent - (53ll << 52));
  return fma(-t, y, x) > half * y;
}

// Counts of a thread fit 32 bits: it sees a small part of the elements.
struct Tally {
  double critical = 0, critical_max = 0, largest = 0, relative = 0;
  u32 steps = 0;
  u32 past[6] = {0, 0, 0, 0, 0, 0};
  u32 out_nan = 0, out_inf = 0, ref_nan = 0, ref_inf = 0, nan_differs = 0, inf_differs = 0;

  template <typename T>
  __device__ void take(T out, double b) {
    const double a = (double)out;
    const double difference = fabs(a - b);
    if (difference == 0) return;
    if (!(difference <= kMost) && !are_finite(a, b)) return;
    const u32 apart = steps_between(out, b);
    steps = apart > steps ? apart : steps;
    const double size = fabs(b), sum = 1.0 + size, larger = size > 1.0 ? size : 1.0;
    // A maximum rises rarely. If difference <= maximum * divisor, then the quotient is no larger
    // than the maximum, and as the maximum is a double, neither is the rounded quotient.
    if ((room(difference, critical, sum) | room(difference, critical_max, larger) |
         room(difference, largest, 1.0) | room(difference, relative, size)) < 0) {
      critical = fmax(critical, difference / sum);
      critical_max = fmax(critical_max, difference / larger);
      largest = fmax(largest, difference);
      relative = fmax(relative, difference / size);
    }
    if (room(difference, kLadder[5], sum) < 0) {
      for (int t = 0; t < 6; t++) past[t] += is_past(difference, sum, kLadder[t]);
    }
  }

  // Counts what is not finite in a pair. Never asked of finite numbers that are no further apart
  // than doubles reach.
  __device__ bool are_finite(double a, double b) {
    const bool a_nan = is_nan(a), b_nan = is_nan(b), a_inf = is_inf(a), b_inf = is_inf(b);
    out_nan += a_nan;
    out_inf += a_inf;
    ref_nan += b_nan;
    ref_inf += b_inf;
    nan_differs += a_nan != b_nan;
    inf_differs += (a_inf || b_inf) && !(a == b);
    return !(a_nan || b_nan || a_inf || b_inf);
  }

  __device__ void give(u64* found) const {
    raise(found, __double_as_longlong(critical));
    raise(found + 1, __double_as_longlong(critical_max));
    raise(found + 2, __double_as_longlong(largest));
    raise(found + 3, __double_as_longlong(relative));
    raise(found + 4, steps);
    for (int t = 0; t < 6; t++) add(found + 5 + t, past[t]);
    add(found + 11, ref_nan);
    add(found + 12, ref_inf);
    add(found + 13, nan_differs);
    add(found + 14, inf_differs);
  }
};

template <typename T>
struct alignas(16) Four {
  T at[4];
};

template <typename T, typename R>
__device__ Tally tally(const T* out, const R* ref, u64 count, u64 thread, u64 stride) {
  Tally seen;
  const bool aligned = (((u64)out | (u64)ref) & 15) == 0;
  const u64 fours = aligned ? count / 4 : 0;
  for (u64 i = thread; i < fours; i += stride) {
    const Four<T> outs = ((const Four<T>*)out)[i];
    const Four<R> refs = ((const Four<R>*)ref)[i];
    for (int k = 0; k < 4; k++) seen.take(outs.at[k], (double)refs.at[k]);
  }
  for (u64 i = 4 * fours + thread; i < count; i += stride) seen.take(out[i], (double)ref[i]);
  return seen;
}

// One output against both references. `found` has two tallies of 15 numbers, then the NaNs and the
// infinities of the output. Half of a block's warps, of which there is an even number, take one
// reference and half the other: a thread with two tallies needs so many registers that too few
// threads run at once.
template <typename T, typename R>
__device__ void grade(const T* out, const R* ref, const double* exact, u64 count, u64* found) {
  const u32 half = blockDim.x / 2;
  const u64 thread = (u64)blockIdx.x * half + threadIdx.x % half, stride = (u64)gridDim.x * half;
  if (threadIdx.x < half) {
    const Tally seen = tally(out, ref, count, thread, stride);
    seen.give(found);
    add(found + 30, seen.out_nan);
    add(found + 31, seen.out_inf);
  } else {
    tally(out, exact, count, thread, stride).give(found + 15);
  }
}

extern "C" __global__ void ka_grade_float(const float* out, const float* ref, const double* exact,
                                          u64 count, u64* found) {
  grade(out, ref, exact, count, found);
}

extern "C" __global__ void ka_grade_double(const double* out, const double* ref,
                                           const double* exact, u64 count, u64* found) {
  grade(out, ref, exact, count, found);
}
