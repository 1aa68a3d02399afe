"""From a kernel source to its image and its launch plan, without a GPU or a driver."""

from kernelassay.compile.source import (
    KernelSignature,
    device_text,
    host_text,
    kernel_signatures,
    macros,
)

__all__ = [
    "KernelSignature",
    "device_text",
    "host_text",
    "kernel_signatures",
    "macros",
]
