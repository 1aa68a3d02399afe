"""The check of BackendBench on samples like those of PyTorch's OpInfo.

``assert_close`` at 1e-2 with NaN equal to NaN: its comparison takes tolerances and does not pass
them on, so 1e-2 holds whatever it was given. (The relative part is of the candidate's own output,
which moves the limit by one part in a hundred, and is left out here.) Its inputs test operators;
here a problem takes their sizes and values. Facts from meta-pytorch/BackendBench at commit 015f5cb,
file BackendBench/eval.py.
"""

from __future__ import annotations

from kernelassay.oracle import AcceptanceRule
from kernelassay.protocol_inputs import KINDS
from kernelassay.protocols.protocol import Protocol

BACKEND_BENCH = Protocol(
    name="backendbench",
    what="six OpInfo-like samples, contiguous or not, assert_close at 1e-2, NaN equal to NaN",
    source="BackendBench at commit 015f5cb",
    inputs=KINDS["opinfo"].ids,
    default=AcceptanceRule(1e-2, nonfinite="matched"),
    rules={},
    unfit="runs",
    draws="opinfo",
)
