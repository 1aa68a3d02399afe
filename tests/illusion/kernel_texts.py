"""Small kernel files, right and faulty in one way each."""

from __future__ import annotations

HEADER = """\
// kernelassay: x = arg0
// kernelassay: y = out[x.shape]
// kernelassay: n = x.numel
// kernelassay: twice<<<(n + 31) / 32, 32>>>(x, y, n)
"""
FLOAT16 = """\
#include <cuda_fp16.h>
#ifdef FLOAT16
typedef half scalar;
#else
typedef float scalar;
#endif
"""


def twice(body: str, header: str = HEADER, scalar: str = "float") -> str:
    """A file with one kernel, a thread per element ``i`` of ``n``."""
    return (
        f"{header}{FLOAT16 if scalar == 'scalar' else ''}"
        f"__global__ void twice({scalar}* x, {scalar}* y, int n) {{\n"
        f"    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n    {body}\n}}\n"
    )


RIGHT = twice("if (i < n) y[i] = scalar(2.0f * float(x[i]));", scalar="scalar")
FLOAT32_ONLY = twice("if (i < n) y[i] = 2.0f * x[i];")
UNWRITTEN = twice("if (i < n && i != 2 && i != 3) y[i] = 2.0f * x[i];")
PAST_THE_END = twice("y[i] = 2.0f * x[i];")
FAR_AWAY = twice("if (i == 0) y[1ll << 44] = 1.0f; if (i < n) y[i] = 2.0f * x[i];")
CHANGES_ITS_INPUT = twice("if (i < n) { y[i] = 2.0f * x[i]; x[i] = 0.0f; }")
ENDLESS = twice("if (i < n) y[i] = 2.0f * x[i]; while (((volatile float*)y)[0] > -1e30f) {}")
RACE = twice(
    "__shared__ float seen[32]; seen[threadIdx.x] = i < n ? x[i] : 0.0f;"
    " if (i < n) y[i] = seen[threadIdx.x ^ 1];"
)
TOO_WIDE = twice("if (i < n) y[i] = x[i];", HEADER.replace("32>>>", "2048>>>"))
NO_SHAPE = twice("if (i < n) y[i] = x[i];", HEADER.replace("out[x.shape]", "out"))
OTHER_INPUT = twice("if (i < n) y[i] = x[i];", HEADER.replace("out[x.shape]", "out[arg1.shape]"))
DOES_NOT_COMPILE = twice("y[i] = undeclared;")
NO_HEADER = twice("y[i] = x[i];", "")
