"""Which bench runs a kernel text on which device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from kernelassay.errors import UsageError
from kernelassay.execute.execution import Bench
from kernelassay.execute.triton.options import Device
from kernelassay.illusion.op import Language

RUNS: Mapping[Language, tuple[str, ...]] = {
    "numpy": ("numpy",),
    "triton": ("interpreter", "cuda"),
    "cuda": ("cuda-cpu", "cuda"),
}
"""The devices that run texts of a language, the one without a GPU first."""
SECONDS = 20.0
DEVICES = ("numpy", "interpreter", "cuda", "cuda-cpu")


def require_runs(language: Language, device: str) -> None:
    """Raise :class:`UsageError` unless texts of the language run on the device."""
    if device not in RUNS[language]:
        raise UsageError(
            f"a {language} kernel does not run on {device!r}",
            where="device",
            hint=f"it runs on {', '.join(RUNS[language])}",
        )


def bench_for(language: Language, device: str, seconds: float = SECONDS) -> Bench:
    """A bench with a process of its own, in which one run has so many seconds.

    The caller closes it. Raises :class:`UsageError` for a device that does not run the language,
    and :class:`ToolchainError` if a compiler or library for it is missing.
    """
    require_runs(language, device)
    if language == "cuda":
        from kernelassay.illusion.cuda_bench import CudaTwinBench

        return CudaTwinBench("cuda" if device == "cuda" else "cpu", seconds)
    from kernelassay.execute.triton import TritonBench

    known = {one: one for one in get_args(Device)}
    return TritonBench(known[device], seconds=seconds)
