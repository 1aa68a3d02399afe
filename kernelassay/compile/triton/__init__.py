"""Identity of Triton modules by what they launch and its machine code, without a GPU."""

from kernelassay.compile.triton.calls import Call, TensorSpec, representative_calls
from kernelassay.compile.triton.classify import classify

__all__ = ["Call", "TensorSpec", "classify", "representative_calls"]
