"""Which bench runs a kernel text on which device."""

from __future__ import annotations

from collections.abc import Mapping

from kernelassay.errors import UnsupportedError, UsageError
from kernelassay.execute.execution import Bench
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


def bench_for(language: Language, device: str, *, seconds: float = SECONDS) -> Bench:
    """A bench with a process of its own; one execution has so many seconds. The caller closes it.

    Raises :class:`UsageError` for a device that does not run the language, and
    :class:`UnsupportedError` if nothing here runs it.
    """
    require_runs(language, device)
    try:
        from kernelassay.execute.triton import TritonBench  # type: ignore[import-untyped]
    except ImportError as error:
        raise UnsupportedError(
            f"no bench runs {language} kernels on {device!r} here: {error}",
            hint="install the extra: pip install 'kernelassay[triton]'",
        ) from error
    bench: Bench = TritonBench(device, seconds=seconds)
    return bench
