"""The executors by name: what a session records of one, and its toolbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.execute.toolbox import CpuToolbox, Toolbox
from kernelassay.plan import OFFICIAL

if TYPE_CHECKING:
    from kernelassay.execute.cuda.toolbox import CudaToolbox

CPU, CUDA = "cpu", "cuda"
LANES_PER_DEVICE = 8
"""Lanes that share a GPU: most of them plan at any time, which needs a CPU alone."""

MakeTools = Callable[[Path], Toolbox]


def facts(cuda: CudaOptions | None) -> dict[str, Any]:
    """What results depend on besides the plan: the executor, its options, its compiler or device.

    ``cuda`` is None for the CPU executor. Raises ``ToolchainError`` if this machine lacks it.
    """
    if cuda is None:
        from kernelassay.execute.cpu.toolchain import find_compiler

        return {"executor": CPU, "compiler": find_compiler().version}
    from kernelassay.compile import nvrtc
    from kernelassay.execute.cuda.toolbox import devices

    # The scale of a session says whether sizes are official; lanes change no result.
    options = {"draw": cuda.draw, "tf32": cuda.tf32}
    return {
        "executor": CUDA,
        "compiler": f"NVRTC {nvrtc.version()}",
        "device": devices()[0],
        "cuda": options,
    }


def tools(cuda: CudaOptions | None) -> MakeTools:
    """What makes an executor's toolbox in a folder for compiled code."""
    if cuda is None:
        return CpuToolbox.at
    return partial(_cuda, options=cuda)


def _cuda(cache: Path, options: CudaOptions) -> CudaToolbox:
    from kernelassay.execute.cuda.toolbox import CudaToolbox

    return CudaToolbox.at(cache, options)


def recorded(manifest: Mapping[str, Any]) -> CudaOptions | None:
    """The options of a session's executor; None for the CPU executor."""
    if manifest.get("executor") != CUDA:
        return None
    return CudaOptions(official=manifest["scale"] == OFFICIAL, **manifest["cuda"])
