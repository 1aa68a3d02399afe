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
    )
}
