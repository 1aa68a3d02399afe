"""The official check of KernelBench, as released and as it stands now.

Five trials whose seeds are drawn after ``manual_seed(42)``; the module is built once under seed
42; inputs are drawn anew per trial; ``torch.allclose`` with equal absolute and relative
tolerance, which rejects NaN anywhere and wants equal infinities. Facts from the harness of
ScalingIntelligence/KernelBench at commit 423217d, file src/kernelbench/eval.py.
"""

from __future__ import annotations

from kernelassay.oracle import AcceptanceRule
from kernelassay.protocols.protocol import Protocol

OFFICIAL_INPUTS = tuple(f"official-{trial}" for trial in range(5))

V01 = Protocol(
    name="kernelbench-v0.1",
    what="five official inputs, allclose at 1e-2",
    source="KernelBench v0 and v0.1",
    inputs=OFFICIAL_INPUTS,
    default=AcceptanceRule(1e-2),
    rules={},
)

CURRENT = Protocol(
    name="kernelbench",
    what="five official inputs, allclose at 1e-4 for float32 and 1e-2 for half types",
    source="KernelBench at commit 423217d",
    inputs=OFFICIAL_INPUTS,
    default=AcceptanceRule(1e-4),
    rules={"float16": AcceptanceRule(1e-2), "bfloat16": AcceptanceRule(1e-2)},
)
