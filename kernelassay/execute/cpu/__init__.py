"""The CPU executor: the same CUDA C++ source through a shim, every access checked."""

from kernelassay.execute.cpu.build import (
    Image,
    build_images,
    build_original,
    build_runtime,
)
from kernelassay.execute.cpu.device import Buffer, CpuDevice
from kernelassay.execute.cpu.toolchain import Compiler, find_compiler
from kernelassay.execute.cpu.translate import unsupported_construct
from kernelassay.kernel import BuildFailure

__all__ = [
    "Buffer",
    "BuildFailure",
    "Compiler",
    "CpuDevice",
    "Image",
    "build_images",
    "build_original",
    "build_runtime",
    "find_compiler",
    "unsupported_construct",
]
