"""One draw at one shape: the check most often written first."""

from __future__ import annotations

from kernelassay.oracle import AcceptanceRule
from kernelassay.protocols.protocol import Protocol

ONE_SHAPE = Protocol(
    name="one-shape-allclose",
    what="the first official input alone, allclose at 1e-2",
    source="common practice; the default of one trial in KernelBench's eval_kernel_against_ref",
    inputs=("official-0",),
    default=AcceptanceRule(1e-2),
    rules={},
)
