"""A check as GPU MODE's competitions make it, with the comparison of pygpubench.

Small shapes, a seed each; an element fails if its error exceeds both tolerances. NaN in the
expected output is a wildcard, so anything passes there; an infinity in it fails even an output that
is equal. Tolerances are each task's own; 1e-3 stands for them here. Facts from gpu-mode/pygpubench
at commit 49897e5, file csrc/check.cu.
"""

from __future__ import annotations

from kernelassay.oracle import AcceptanceRule
from kernelassay.protocol_inputs import KINDS
from kernelassay.protocols.protocol import Protocol

GPU_MODE = Protocol(
    name="gpu-mode",
    what="five small shapes, |d| <= max(1e-3, 1e-3 |ref|), anything where NaN is expected",
    source="pygpubench at commit 49897e5",
    inputs=KINDS["small-tests"].ids,
    default=AcceptanceRule(1e-3, form="max", nonfinite="wildcard"),
    rules={},
    unfit="runs",
    draws="small-tests",
)
