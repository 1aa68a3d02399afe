"""The check of KernelBench-Verified, and the same inputs at the tolerance of KernelBench v0.1.

A problem's own inputs times 1, 3, 0.01 and -1; integer tensors and parameters never change. The
tolerance is 1e-3 for float32 and 1e-2 for half types. A configuration on which the reference is not
finite is dropped. arXiv 2609.22220 compares its inputs at 1e-2 with the official ones.
"""

from __future__ import annotations

from kernelassay.oracle import AcceptanceRule
from kernelassay.protocols.protocol import Protocol

# Times 1 is the first official input.
VERIFIED_INPUTS = ("official-0", "verified-x3", "verified-x0.01", "verified-x-1")

VERIFIED = Protocol(
    name="kernelbench-verified",
    what="own inputs times 1, 3, 0.01 and -1, allclose at 1e-3 for float32, 1e-2 for half types",
    source="KernelBench-Verified",
    inputs=VERIFIED_INPUTS,
    default=AcceptanceRule(1e-3),
    rules={"float16": AcceptanceRule(1e-2), "bfloat16": AcceptanceRule(1e-2)},
    unfit="drops",
    draws="verified",
)

VERIFIED_INPUTS_AT_V01 = Protocol(
    name="kernelbench-verified-inputs",
    what="own inputs times 1, 3, 0.01 and -1, allclose at 1e-2",
    source="the comparison of inputs in arXiv 2609.22220",
    inputs=VERIFIED_INPUTS,
    default=AcceptanceRule(1e-2),
    rules={},
    unfit="drops",
    draws="verified",
)
