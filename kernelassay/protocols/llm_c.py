"""The validator of llm.c: element by element, absolute but for one rounding of the reference.

It skips positions whose reference is not finite, and asks whether the difference *exceeds* the
tolerance: a difference that is NaN never does. So an output of NaN alone passes. Facts from
karpathy/llm.c at commit 0f112f1, file dev/cuda/common.h.
"""

from __future__ import annotations

from kernelassay.oracle import AcceptanceRule
from kernelassay.protocols.protocol import Protocol

FLOAT_EPSILON = 2.0**-23

LLM_C = Protocol(
    name="llm.c",
    what="one input, |d| <= 1e-4 + 2^-23 |ref| (0.079 |ref| for bfloat16); NaN passes",
    source="llm.c at commit 0f112f1, validate_result",
    inputs=("official-0",),
    default=AcceptanceRule(1e-4, nonfinite="skips", relative=FLOAT_EPSILON),
    rules={"bfloat16": AcceptanceRule(1e-4, nonfinite="skips", relative=0.079)},
)
