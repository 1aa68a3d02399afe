"""Kernel texts in Python (Triton, NumPy) run in worker processes; only arrays come back."""

from kernelassay.execute.triton.bench import TritonBench
from kernelassay.execute.triton.options import Device, Options

__all__ = ["Device", "Options", "TritonBench"]
