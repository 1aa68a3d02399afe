// CUDA C++ device code for a host C++ compiler. Header-only, no system headers: parsing one costs
// more than a whole small kernel.
//
// Differences from a GPU that remain: a cast of an out-of-range float to an integer gives the host's
// value instead of saturating (the __float2int_* functions saturate), and a shift by the width or more
// takes the count modulo the width. NaNs may carry another payload. No contraction to fma.
#pragma once
#include "core.h"
#include "vector_types.h"
#include "block.h"
#include "local_array.h"
#include "scalar_math.h"
#include "intrinsics.h"
#include "narrow.h"
#include "fp8.h"
#include "atomics.h"
#include "groups.h"
#include "entry.h"
#include "fuel.h"
