"""Two seeded fuzz checks in the manner of "The Correctness Illusion" (arXiv 2606.20128).

One is the fuzz as arXiv 2609.22220 compares it: three inputs, magnitudes log-uniform over six
decades; what it says no more of (the centre, 1, and the tolerance, 1e-2 as of the others there) is
ours. The other is the original's own: shapes drawn from a schema's short lists, values uniform in
[-10, 10), an absolute tolerance that defaults to 1e-5 (1e-2 for float16), and any NaN or infinity
in the output a failure, whatever the reference says. The original's tolerances by operator have no
place on problems that are no single operator. Neither asks whether a correct kernel can pass.
"""

from __future__ import annotations

from kernelassay.oracle import AcceptanceRule
from kernelassay.protocol_inputs import KINDS
from kernelassay.protocols.protocol import Protocol

LOG_UNIFORM = Protocol(
    name="illusion-log-uniform",
    what="three inputs with magnitudes log-uniform over six decades, allclose at 1e-2",
    source="the Correctness-Illusion-style fuzz of arXiv 2609.22220",
    inputs=KINDS["log-uniform"].ids,
    default=AcceptanceRule(1e-2),
    rules={},
    unfit="runs",
    draws="log-uniform",
)

SCHEMA = Protocol(
    name="illusion-schema",
    what="eight draws of shapes and values, |d| <= 1e-5 (1e-2 for float16), all finite",
    source="The Correctness Illusion, arXiv 2606.20128, its fuzzer and default tolerances",
    inputs=KINDS["schema"].ids,
    default=AcceptanceRule(1e-5, nonfinite="strict", relative=0.0),
    rules={"float16": AcceptanceRule(1e-2, nonfinite="strict", relative=0.0)},
    unfit="runs",
    draws="schema",
)
