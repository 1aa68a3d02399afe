"""Coefficients that predict before anything was measured here, by executor."""

from __future__ import annotations

from collections.abc import Mapping

from kernelassay.cost import ANY, CANDIDATE, ORIGINAL, PREPARE, Coefficients, Machine

MACHINES: Mapping[str, Machine] = {
    machine.executor: machine
    for machine in (
        Machine(
            "cpu",
            "placeholder",
            {
                ANY: Coefficients(1e-4, 1e8, 1e8),
                PREPARE: Coefficients(1e-2, 1e9, 1e9),
                ORIGINAL: Coefficients(1e-3, 1e9, 1e9),
                CANDIDATE: Coefficients(1e-3, 1e9, 1e9),
            },
        ),
        Machine(
            "cuda",
            "assumed for fp32 kernels in plain CUDA on an H200: 2 TFLOP/s one thread per element and"
            " 10 in tiles, 2 and 3 TB/s; nothing measured",
            {
                ANY: Coefficients(2e-5, 2e12, 2e12),
                "*/optimised": Coefficients(2e-5, 1e13, 3e12),
                PREPARE: Coefficients(1e-2, 1e13, 3e12),
                ORIGINAL: Coefficients(2e-3, 1e13, 3e12),
                CANDIDATE: Coefficients(2e-3, 1e13, 3e12),
            },
        ),
    )
}
