"""The check of flashinfer-bench: the max rule, and for low-bit kernels a share of the elements.

Three trials; an element fails only if its absolute and its relative error both exceed 1e-2. Any
NaN or infinity in the output fails. Where a matched ratio is required (0.95 for low-bit kernels),
one element in twenty may be anything. Several outputs have a ratio each there, and one over all
their elements here. Facts from flashinfer-ai/flashinfer-bench at commit 00a1ec8, folder
flashinfer_bench/bench.
"""

from __future__ import annotations

from dataclasses import replace

from kernelassay.oracle import AcceptanceRule
from kernelassay.protocols.kernelbench import OFFICIAL_INPUTS
from kernelassay.protocols.protocol import Protocol

FLASHINFER = Protocol(
    name="flashinfer-bench",
    what="three official inputs, |d| <= max(1e-2, 1e-2 |ref|) everywhere, finite outputs",
    source="flashinfer-bench at commit 00a1ec8, its default configuration",
    inputs=OFFICIAL_INPUTS[:3],
    default=AcceptanceRule(1e-2, form="max", nonfinite="strict"),
    rules={},
)

FLASHINFER_LOW_BIT = replace(
    FLASHINFER,
    name="flashinfer-bench-low-bit",
    what="three official inputs, |d| <= max(1e-2, 1e-2 |ref|) for 95% of the elements, all finite",
    source="flashinfer-bench at commit 13785ad, its evaluator of low-bit kernels",
    default=replace(FLASHINFER.default, matched_ratio=0.95),
)
