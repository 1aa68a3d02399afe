// The binary interface between Python (device.py mirrors these layouts), the images and the runtime.
#pragma once
#include <cstddef>
#include <cstdint>

// Order is the contract with FINDINGS in device.py.
enum FindingKind : uint32_t {
  kOobGlobalRead,
  kOobGlobalWrite,
  kOobSharedRead,
  kOobSharedWrite,
  kRaceShared,
  kRaceGlobal,
  kUninitialisedRead,
  kBarrierDivergence,
  kWarpDivergence,
  kMisaligned,
  kInputWrite,
  kOobLocal,
  kFindingKinds
};

// Order is the contract with OUTCOMES in device.py.
enum Outcome : uint32_t { kOk, kCrash, kTimeout, kLaunchFailure };

struct Index3 {
  uint32_t x, y, z;
};

// Where something happened. `region` is a buffer's window, or -1; `array` names a shared array.
struct Place {
  uint32_t step;
  Index3 block, thread;
  int32_t region;
  int32_t other_thread;  // of a race; -1: none, or a thread of another block
  uint32_t size;         // bytes accessed
  int64_t offset;        // from the start of the buffer or shared array
  uint64_t line;         // source line of a barrier or warp operation, else 0
  char array[32];
};

struct Result {
  uint32_t outcome;
  uint32_t in_kernel;     // whether `fault` holds the thread that ended the run
  int64_t fuel_used;
  uint64_t counts[kFindingKinds];
  Place first[kFindingKinds];
  Place fault;
  char reason[160];
};

// One argument of a launch; the image converts it to the parameter's type as C++ would.
struct Slot {
  int64_t kind;  // 0 integer, 1 floating point, 2 pointer
  union {
    int64_t integer;
    double real;
    void* pointer;
  };
};

// What an image exports for each kernel.
struct KernelEntry {
  void (*call)(const Slot*);
  int32_t arity;
};

struct Step {
  uint64_t kind;  // 0 launch, 1 memset
  union {
    struct {
      const KernelEntry* kernel;
      uint32_t grid[3], block[3];
      uint64_t shared_bytes;
      uint64_t slots;  // that many Slot follow this Step
    } launch;
    struct {
      char* target;
      uint64_t value, nbytes;
    } memset;
  };
};
static_assert(sizeof(Step) == 56 && sizeof(Slot) == 16, "device.py packs these layouts");
