"""The CUDA executor's toolbox: NVRTC's cubins, and stations on one device."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelassay import oracle
from kernelassay.compile import nvrtc
from kernelassay.compile.cubins import CubinImage
from kernelassay.errors import ToolchainError
from kernelassay.execute.cuda.build import build_cubins
from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.execute.toolbox import Workbench
from kernelassay.kernel import BuildFailure
from kernelassay.problem import Problem

_OWN = Path(__file__).parent / "kernels.cu"
CAPABILITY = (9, 0)


@dataclass(frozen=True, slots=True)
class CudaToolbox:
    """``kernels`` is the cubin of our own kernels, ``device`` as in :func:`visible`."""

    kernels: Path
    cache: Path
    options: CudaOptions
    device: str = "0"
    jobs: int = 2

    @classmethod
    def at(cls, cache: Path, options: CudaOptions) -> CudaToolbox:
        """Compile what the executor itself needs. Raises ``ToolchainError`` without NVRTC."""
        return cls(own_kernels(cache), cache, options, visible(0))

    @property
    def settings(self) -> tuple[str, ...]:
        """See :class:`kernelassay.execute.toolbox.Toolbox`."""
        one = self.options
        where = (self.kernels.name, nvrtc.version())
        return ("cuda", *where, f"{one.official} {one.draw} {one.tf32}")

    @property
    def cubins(self) -> bool:
        """See :class:`kernelassay.execute.toolbox.Toolbox`."""
        return True

    def build(self, sources: Mapping[str, str]) -> Mapping[str, CubinImage | BuildFailure]:
        """See :class:`kernelassay.execute.toolbox.Toolbox`."""
        return build_cubins(sources, self.cache)

    def open(self, problem: Problem, beat: Callable[[], None]) -> Workbench:
        """See :class:`kernelassay.execute.toolbox.Toolbox`."""
        from kernelassay.execute.cuda.workbench import CudaWorkbench

        return CudaWorkbench(problem, self.kernels, self.options, self.device, beat)

    def on_device(self, index: int) -> CudaToolbox:
        """The same for another device."""
        return replace(self, device=visible(index))


def visible(index: int) -> str:
    """What to write into ``CUDA_VISIBLE_DEVICES`` for one of the devices that this process sees."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",")[index].strip() if given else str(index)


def own_source() -> str:
    """The text of our own kernels, with the constants they share with :mod:`kernelassay.oracle`."""
    text = _OWN.read_text()
    for name, value in {
        "POISON_WORD": f"{oracle.POISON_WORD:#x}u",
        "POISON_HALF": f"{oracle.POISON_HALF:#x}u",
        "LADDER": ", ".join(repr(t) for t in oracle.LADDER),
    }.items():
        text = text.replace(f"@{name}@", value)
    return text


def own_kernels(cache: Path) -> Path:
    """The cubin of our own kernels, compiled once per text and compiler version."""
    from kernelassay.session import write_whole

    text = own_source()
    reason = nvrtc.unavailable_reason()
    if reason:
        raise ToolchainError(reason, hint="install kernelassay[nvrtc]")
    name = hashlib.blake2b(f"{nvrtc.version()}{text}".encode(), digest_size=10).hexdigest()
    path = cache / f"own-{name}.cubin"
    if not path.exists():
        made = nvrtc.compile_program(text)
        if not made.ok:
            raise ToolchainError(f"the executor's kernels do not compile:\n{made.log[:2000]}")
        write_whole(path, made.image)
    return path


def devices() -> tuple[str, ...]:
    """The names of this machine's devices; starts CUDA in this process, without a context.

    Raises ``ToolchainError`` if there is none, or one of another kind than kernels are made for.
    """
    hint = "use --executor cpu, or a machine with a Hopper GPU, its driver and cuda-bindings"
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise ToolchainError(f"cuda.bindings.driver does not import: {error}", hint=hint) from error

    def checked(result: tuple[Any, ...]) -> Any:
        if int(result[0]):
            raise ToolchainError(f"no CUDA device is found: {result[0].name}", hint=hint)
        return result[1] if len(result) > 1 else None

    try:
        checked(driver.cuInit(0))
        count = int(checked(driver.cuDeviceGetCount()))
    except RuntimeError as error:  # there is no driver library
        raise ToolchainError(f"no CUDA device is found: {error}", hint=hint) from error
    names = []
    kind = driver.CUdevice_attribute
    for index in range(count):
        device = checked(driver.cuDeviceGet(index))
        name = checked(driver.cuDeviceGetName(64, device)).split(b"\0")[0].decode()
        found = tuple(
            int(checked(driver.cuDeviceGetAttribute(attribute, device)))
            for attribute in (
                kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        if found != CAPABILITY:
            raise ToolchainError(
                f"{name} has compute capability {found[0]}.{found[1]}, kernels are for sm_90",
                hint=hint,
            )
        names.append(name)
    return tuple(names)
