"""The forward check of robust-kbench: five trials, the model built anew in each.

``allclose`` at 1e-5, which correct kernels with another order of summation do not all pass. The
candidate runs before the reference and again after it; what that finds (outputs left over from
another run) no mutant here does. Facts from SakanaAI/robust-kbench at commit 078f5ba.
"""

from __future__ import annotations

from kernelassay.oracle import AcceptanceRule
from kernelassay.protocol_inputs import KINDS
from kernelassay.protocols.protocol import Protocol

ROBUST = Protocol(
    name="robust-kbench",
    what="five draws, each with newly initialised parameters, allclose at 1e-5",
    source="robust-kbench at commit 078f5ba",
    inputs=KINDS["robust"].ids,
    default=AcceptanceRule(1e-5),
    rules={},
    unfit="runs",
    draws="robust",
)
