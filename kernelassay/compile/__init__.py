"""From a kernel source to its image and its launch plan, without a GPU or a driver."""

from kernelassay.compile.launcher import Launcher, launch_plan, parse_launcher
from kernelassay.compile.source import (
    KernelSignature,
    device_text,
    host_text,
    kernel_signatures,
    macros,
)
from kernelassay.compile.values import NULL_POINTER, LaunchError, LaunchTimeoutError

__all__ = [
    "NULL_POINTER",
    "KernelSignature",
    "LaunchError",
    "LaunchTimeoutError",
    "Launcher",
    "device_text",
    "host_text",
    "kernel_signatures",
    "launch_plan",
    "macros",
    "parse_launcher",
]
