"""The substrate: correct CUDA kernels for the operations of a traced module."""

from kernelassay.substrate.lowering import bind, lower

__all__ = ["bind", "lower"]
