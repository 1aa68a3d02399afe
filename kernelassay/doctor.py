"""What this machine offers, checked by trying it."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from kernelassay.errors import KernelassayError

OK, ABSENT, MISSING = "ok", "absent", "missing"
MIN_FREE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Check:
    """One check: ``ok``, ``absent`` (optional, works without) or ``missing`` (required)."""

    name: str
    state: str
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def examine() -> list[Check]:
    """Run all checks."""
    return [check() for check in CHECKS]


def _torch() -> Check:
    try:
        return Check("torch", OK, importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        return Check("torch", MISSING, "install torch")


def _compiler() -> Check:
    from kernelassay.execute.cpu.toolchain import find_compiler

    try:
        compiler = find_compiler()
    except KernelassayError as error:
        return Check("C++ compiler", MISSING, str(error))
    return Check("C++ compiler", OK, compiler.version)


def _executor() -> Check:
    from kernelassay.execute.cpu.build import BuildFailure, build_images, build_runtime
    from kernelassay.execute.cpu.toolchain import find_compiler
    from kernelassay.session import user_cache

    source = (
        'extern "C" __global__ void probe(int* y) { y[threadIdx.x] = threadIdx.x; }\n'
        "void launch(int* y) { probe<<<1, 32>>>(y); }\n"
    )
    try:
        compiler = find_compiler()
        build_runtime(compiler, user_cache())
        image = build_images({"probe": source}, user_cache(), compiler)["probe"]
    except KernelassayError as error:
        return Check("CPU executor", MISSING, str(error))
    if isinstance(image, BuildFailure):
        return Check("CPU executor", MISSING, image.log[:300])
    return Check("CPU executor", OK, f"runtime and kernels build in {user_cache()}")


def _nvrtc() -> Check:
    from kernelassay.compile import nvrtc

    if nvrtc.available():
        return Check("NVRTC", OK, f"nvidia-cuda-nvrtc {_version('nvidia-cuda-nvrtc')}")
    hint = "install the extra `nvrtc`; until then equivalence is told by the host compiler"
    return Check("NVRTC", ABSENT, hint)


def _gpu() -> Check:
    from kernelassay.execute.cuda.toolbox import devices

    try:
        return Check("CUDA executor", OK, ", ".join(devices()))
    except KernelassayError as error:
        return Check("CUDA executor", ABSENT, error.what)


def _disk() -> Check:
    free = shutil.disk_usage(".").free
    state = OK if free >= MIN_FREE_BYTES else MISSING
    return Check("disk", state, f"{free / 2**30:.1f} GiB free here")


def _cores() -> Check:
    return Check("cores", OK, str(os.cpu_count()))


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(version unknown)"


CHECKS: tuple[Callable[[], Check], ...] = (
    _torch,
    _compiler,
    _executor,
    _nvrtc,
    _gpu,
    _disk,
    _cores,
)
