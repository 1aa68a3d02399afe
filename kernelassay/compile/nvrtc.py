"""NVRTC without a GPU or a driver: options, versions, and one compilation.

NVRTC can crash on a mutant, so mutants are compiled in worker processes
(:mod:`kernelassay.compile.worker`); :func:`compile_program` is what such a worker runs.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelassay.errors import KernelSyntaxError, ToolchainError

ARCHITECTURE = "sm_90"
# No contraction: the code then rounds as the CPU executor and the float64 bound assume.
OPTIONS = (f"--gpu-architecture={ARCHITECTURE}", "--fmad=false", "--std=c++17")
SYNTAX_ONLY = "-fdevice-syntax-only"

PRELUDE = """\
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38f
#endif
#ifndef FLT_MIN
#define FLT_MIN 1.175494351e-38f
#endif
#ifndef FLT_EPSILON
#define FLT_EPSILON 1.192092896e-07f
#endif
#ifndef INT_MAX
#define INT_MAX 2147483647
#endif
#ifndef INT_MIN
#define INT_MIN (-INT_MAX - 1)
#endif
#ifndef LLONG_MAX
#define LLONG_MAX 9223372036854775807LL
#endif
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned long ulong;
"""
# What C's headers define, of which NVRTC has none; the values are the shim's.
_CONSTANTS = {
    "UINT_MAX": "0xffffffffu",
    "DBL_MAX": "1.7976931348623157e+308",
    "DBL_MIN": "2.2250738585072014e-308",
    "DBL_EPSILON": "2.2204460492503131e-16",
    "M_PI": "3.14159265358979323846",
    "M_E": "2.7182818284590452354",
    "M_LOG2E": "1.4426950408889634074",
    "M_LN2": "0.69314718055994530942",
    "M_LN10": "2.30258509299404568402",
    "M_SQRT2": "1.41421356237309504880",
    "M_SQRT1_2": "0.70710678118654752440",
    "M_2_SQRTPI": "1.12837916709551257390",
    "M_1_PI": "0.31830988618379067154",
    "M_2_PI": "0.63661977236758134308",
    "M_PI_2": "1.57079632679489661923",
    "M_PI_4": "0.78539816339744830962",
}
PRELUDE += "".join(
    f"#ifndef {name}\n#define {name} {value}\n#endif\n" for name, value in _CONSTANTS.items()
)

# Headers given to NVRTC as empty ones. cooperative_groups.h takes `nv/target` from libcu++, a wheel
# of its own: macros that NVRTC has built in, and type traits, of which it brings a copy. `cuda.h`
# is the driver's interface for host code and wants C's headers.
_EMPTY_HEADERS = ("nv/target", "cuda.h")
_OWN_TRAITS = "-D_CG_LIMIT_INCLUDED_DEPENDENCIES"


@dataclass(frozen=True, slots=True)
class Compilation:
    """What NVRTC made of a program: an image (none in a syntax-only pass), or errors in the log.

    ``cpu_seconds`` are those of the process while NVRTC was at it.
    """

    ok: bool
    image: bytes
    log: str
    cpu_seconds: float


@lru_cache(maxsize=1)
def unavailable_reason() -> str:
    """Why NVRTC cannot be used here; "" when it can."""
    try:
        _bindings()
        version()
    except ToolchainError as error:
        return error.what
    return ""


def available() -> bool:
    """Whether NVRTC can be used here."""
    return not unavailable_reason()


@lru_cache(maxsize=1)
def version() -> str:
    """NVRTC's version, ``major.minor``, and the release of its wheel where known."""
    nvrtc = _bindings()
    try:
        code, major, minor = nvrtc.nvrtcVersion()
    except (OSError, RuntimeError) as error:
        raise ToolchainError(
            f"the NVRTC library does not load: {error}", hint="install kernelassay[nvrtc]"
        ) from error
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise ToolchainError(f"NVRTC does not tell its version: {code}")
    return f"{major}.{minor}{_wheel_release()}"


def _wheel_release() -> str:
    from importlib import metadata

    try:
        return f" ({metadata.version('nvidia-cuda-nvrtc')})"
    except metadata.PackageNotFoundError:
        return ""


def _bindings() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise ToolchainError(
            f"cuda.bindings.nvrtc does not import: {error}", hint="install kernelassay[nvrtc]"
        ) from error
    return nvrtc


@lru_cache(maxsize=1)
def include_directories() -> tuple[str, ...]:
    """Directories with the CUDA headers (``cuda_fp16.h``), from the runtime's wheel."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [
        str(header.parent)
        for root in roots
        for pattern in ("cu*/include/cuda_fp16.h", "cuda_runtime/include/cuda_fp16.h")
        for header in sorted(Path(root).glob(pattern))
    ]
    return tuple(dict.fromkeys(found))


def compile_program(program: str, extra: tuple[str, ...] = ()) -> Compilation:
    """Compile ``program`` in this process, with :data:`OPTIONS` and ``extra`` ones.

    A crash of NVRTC ends the process: give it text that is known to compile, or use a worker.
    """
    nvrtc = _bindings()
    success = nvrtc.nvrtcResult.NVRTC_SUCCESS
    includes = (f"--include-path={path}" for path in include_directories())
    options = [option.encode() for option in (*OPTIONS, _OWN_TRAITS, *includes, *extra)]
    code, handle = nvrtc.nvrtcCreateProgram(
        program.encode(),
        b"kernels.cu",
        len(_EMPTY_HEADERS),
        [b"#pragma once\n"] * len(_EMPTY_HEADERS),
        [name.encode() for name in _EMPTY_HEADERS],
    )
    if code != success:
        raise ToolchainError(f"NVRTC cannot make a program: {code}")
    try:
        start = time.process_time()
        (code,) = nvrtc.nvrtcCompileProgram(handle, len(options), options)
        spent = time.process_time() - start
        log = _log(nvrtc, handle)
        if code != success:
            return Compilation(False, b"", f"{code.name}\n{log}", spent)
        if SYNTAX_ONLY in extra:
            return Compilation(True, b"", log, spent)
        code, size = nvrtc.nvrtcGetCUBINSize(handle)
        if code != success or size == 0:
            raise ToolchainError(f"NVRTC made no cubin: {code}")
        # bytes(n) is always a fresh object; a one-byte literal would be shared and overwritten.
        image = bytes(size + 8)
        nvrtc.nvrtcGetCUBIN(handle, image)
        return Compilation(True, image[:size], log, spent)
    finally:
        nvrtc.nvrtcDestroyProgram(handle)


def _log(nvrtc: Any, handle: Any) -> str:
    code, size = nvrtc.nvrtcGetProgramLogSize(handle)
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS or size <= 1:
        return ""
    buffer = bytes(size + 8)
    nvrtc.nvrtcGetProgramLog(handle, buffer)
    return buffer[:size].rstrip(b"\0").decode("utf-8", "replace")


def compile_cubin(source: str) -> bytes:
    """The cubin of a kernel source under its own kernel names, to be launched.

    Raises ``KernelSyntaxError`` with the first compiler error.
    """
    from kernelassay.compile.source import device_text

    made = compile_program(f'{PRELUDE}#line 1 "kernel"\n{device_text(source)}')
    if not made.ok:
        raise KernelSyntaxError(first_error(made.log))
    return made.image


def first_error(log: str) -> str:
    """The first error line of a log, or its last line when none is marked."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for line in lines:
        if "error" in line.lower() and not line.startswith("NVRTC_"):
            return line
    return lines[-1] if lines else "the compiler failed without a message"
