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
__device__ long long ordered(float x) {
  const int bits = __float_as_int(x);
  return bits < 0 ? (long long)(-2147483647 - 1) - bits : (long long)bits;
}

__device__ u64 steps_between(float x, double target) {
  const long long distance = ordered(x) - ordered((float)target);
  return distance < 0 ? -distance : distance;
}
__device__ u64 steps_between(double, double) { return 0; }

__constant__ double kLadder[6] = {@LADDER@};

struct Tally {
  double critical = 0, critical_max = 0, largest = 0, relative = 0;
  u64 steps = 0;
  u64 past[6] = {0, 0, 0, 0, 0, 0};
  u64 ref_nan = 0, ref_inf = 0, nan_differs = 0, inf_differs = 0;

  template <typename T>
  __device__ void take(T out, double b) {
    const double a = (double)out;
    const bool a_nan = is_nan(a), b_nan = is_nan(b), a_inf = is_inf(a), b_inf = is_inf(b);
    ref_nan += b_nan;
    ref_inf += b_inf;
    nan_differs += a_nan != b_nan;
    inf_differs += (a_inf || b_inf) && !(a == b);
    if (a_nan || b_nan || a_inf || b_inf) return;
    const u64 apart = steps_between(out, b);
    steps = apart > steps ? apart : steps;
    const double difference = fabs(a - b);
    if (difference == 0) return;
    const double size = fabs(b);
    const double scaled = difference / (1.0 + size);
    critical = fmax(critical, scaled);
    critical_max = fmax(critical_max, difference / fmax(1.0, size));
    largest = fmax(largest, difference);
    relative = fmax(relative, difference / size);
    for (int t = 0; t < 6; t++) past[t] += scaled > kLadder[t];
  }

  __device__ void give(u64* found) {
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

// One output against both references. `found` has two tallies of 15 numbers, then the NaNs and the
// infinities of the output.
template <typename T, typename R>
__device__ void grade(const T* out, const R* ref, const double* exact, u64 count, u64* found) {
  Tally seen, true_one;
  u64 nan = 0, inf = 0;
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    const T value = out[i];
    nan += is_nan((double)value);
    inf += is_inf((double)value);
    seen.take(value, (double)ref[i]);
    true_one.take(value, exact[i]);
  }
  seen.give(found);
  true_one.give(found + 15);
  add(found + 30, nan);
  add(found + 31, inf);
}

extern "C" __global__ void ka_grade_float(const float* out, const float* ref, const double* exact,
                                          u64 count, u64* found) {
  grade(out, ref, exact, count, found);
}

extern "C" __global__ void ka_grade_double(const double* out, const double* ref,
                                           const double* exact, u64 count, u64* found) {
  grade(out, ref, exact, count, found);
}
