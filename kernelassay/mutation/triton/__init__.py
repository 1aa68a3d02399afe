"""Mutation of Triton kernels: Python module texts with ``@triton.jit`` functions.

Its modules need libcst; they are imported through :mod:`kernelassay.mutation.language`.
"""
