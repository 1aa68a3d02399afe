"""How the CUDA executor treats a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CudaOptions:
    """``official``: inputs at the problems' own sizes are full-size ones, which do not leave the
    device; ``draw`` tells whether those are drawn on the ``cpu``, as KernelBench does, or on the
    ``device`` (the same distribution, another stream). ``tf32`` leaves cuDNN's TF32 switch on for
    the references, as PyTorch does by default. ``lanes`` processes share the device's memory.
    """

    official: bool = False
    draw: str = "device"
    tf32: bool = False
    lanes: int = 1
