"""The C++ compiler behind the CPU executor: finding one, and the commands it is run with.

g++ is preferred (it starts about twice as fast), then clang++, then the compiler in the ``ziglang``
wheel, which needs nothing from the system.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kernelassay.errors import ToolchainError

ENVIRONMENT = "KERNELASSAY_CXX"
GCC, CLANG, ZIG = "g++", "clang++", "zig"
_HINT = (
    "install g++ 9 or newer (Debian: apt install g++; Fedora: dnf install gcc-c++) or clang++ 11 or"
    f" newer, or `pip install 'kernelassay[zig]'`; {ENVIRONMENT} names another compiler"
)

# What makes C++ mean on the host what CUDA means on the device: no contraction, wrapping integers,
# casts between float* and float4*, infinite loops that stay, no null-pointer reasoning. Variables
# without a value hold the compiler's fixed pattern instead of what lay on the stack.
_MEANING = (
    "-ffp-contract=off",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fno-finite-loops",
    "-fno-delete-null-pointer-checks",
    "-fno-math-errno",
)
_SMALL = (
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
    "-U_FORTIFY_SOURCE",
    "-w",
)
_CHECKED = (
    "-DCU_CHECKED",
    "-fsanitize=thread",
    "-fsanitize=alignment",
    "-fno-sanitize-recover=alignment",
)


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++17 compiler: its ``kind``, the words that start it, and its version for cache keys."""

    kind: str
    command: tuple[str, ...]
    version: str

    def image_commands(self, source: Path, library: Path, include: Path, *, checked: bool) -> Steps:
        """The commands, in order, that make a loadable ``library`` of one translation unit."""
        compile_ = (*self.command, *self.image_flags(checked=checked), "-I", str(include))
        language = ("-x", "c++", str(source), "-x", "none")
        if self.kind == ZIG and checked:
            # Linked in one step, zig adds its own thread sanitizer, which cannot be loaded late.
            unit = library.with_suffix(".o")
            linker = (*self.command[:-1], "ld.lld")
            return (
                (*compile_, *language[:3], "-c", "-o", str(unit)),
                (*linker, "-shared", str(unit), "-o", str(library)),
            )
        support = () if self.kind == ZIG else ("-lgcc",)
        return ((*compile_, "-shared", "-nostdlib", *language, "-o", str(library), *support),)

    def image_flags(self, *, checked: bool) -> tuple[str, ...]:
        """The flags an image is compiled with."""
        flags = ["-std=gnu++17", "-O1", *_MEANING, *_SMALL]
        if self.kind != GCC or _major(self.version) >= 12:
            flags.append("-ftrivial-auto-var-init=pattern")
        if checked:
            flags += _CHECKED
            if self.kind == GCC:
                if _major(self.version) >= 11:
                    flags += ["--param", "tsan-distinguish-volatile=1"]
            else:
                flags += ["-mllvm", "-tsan-distinguish-volatile=1"]
                # Clang leaves out the read in `a[i] += x`, which hides uninitialised reads.
                flags += ["-mllvm", "-tsan-instrument-read-before-write"]
                flags += ["-mllvm", "-tsan-instrument-func-entry-exit=0"]
            if self.kind == CLANG:
                flags.append("-fno-sanitize-link-runtime")
        return tuple(flags)

    def runtime_command(self, sources: Sequence[Path], library: Path, *defines: str) -> Command:
        """The command that makes the runtime ``library``."""
        optimise = ("-std=c++17", "-O2", "-fPIC", "-U_FORTIFY_SOURCE", "-fno-stack-protector")
        files = [str(source) for source in sources]
        return (
            *self.command, *optimise, *defines, "-shared", *files, "-o", str(library),
            "-ldl", "-lpthread", "-lm",
        )  # fmt: skip


Command = tuple[str, ...]
Steps = tuple[Command, ...]


# Sent by a person, or by the system that has no memory left; not what a compiler's fault raises.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)
# What g++ and clang++ say when that happens to a process of theirs.
_KILLED = re.compile(r"(Killed|Terminated) signal terminated program|execute command: Killed")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a compiler run ended; ``final`` is false when a repetition might end otherwise."""

    ok: bool
    log: str
    final: bool


def find_compiler(preferred: str | None = None) -> Compiler:
    """The compiler to use: ``preferred``, else the environment's choice, else the first found.

    ``preferred`` is a command line (``"clang++-19"``, ``"python -m ziglang c++"``). Raises
    ``ToolchainError`` that says what to install.
    """
    choice = preferred or os.environ.get(ENVIRONMENT)
    if choice:
        found = _probe(tuple(choice.split()))
        if found is None:
            raise ToolchainError(f"the C++ compiler {choice!r} does not run", hint=_HINT)
        return found
    for command in (("g++",), ("clang++",), (sys.executable, "-m", "ziglang", "c++")):
        if "ziglang" in command and importlib.util.find_spec("ziglang") is None:
            continue
        found = _probe(command)
        if found is not None:
            return found
    raise ToolchainError("no C++ compiler found for the CPU executor", hint=_HINT)


def _probe(command: tuple[str, ...]) -> Compiler | None:
    path = shutil.which(command[0])
    return None if path is None else _version(command, path)


@lru_cache
def _version(command: tuple[str, ...], path: str) -> Compiler | None:
    """The compiler at ``path``; the path is part of the cache key, as PATH may change."""
    try:
        process = subprocess.run(
            [path, *command[1:], "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if process.returncode:
        return None
    lines = process.stdout.strip().splitlines()
    if not lines:
        return None
    kind = ZIG if "ziglang" in command or "zig" in Path(path).name else GCC
    if kind == GCC and "clang" in process.stdout.lower():
        kind = CLANG
    return Compiler(kind, (path, *command[1:]), lines[0])


def _major(version: str) -> int:
    match = re.search(r"(\d+)\.\d+\.\d+", version)
    return int(match.group(1)) if match else 0


def run_commands(commands: Steps, *, timeout_s: float = 60, memory_mib: int = 4096) -> Outcome:
    """Run compiler commands one after the other, with limits on wall time and address space."""
    for command in commands:
        limited = ["/bin/sh", "-c", 'ulimit -v "$0" && exec "$@"', str(memory_mib << 10), *command]
        process = subprocess.Popen(
            limited,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},  # messages are searched
        )
        try:
            log, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the driver's children, too
            process.communicate()
            return Outcome(False, f"the compiler did not end within {timeout_s:g} s", final=False)
        if process.returncode < 0:
            what = f"the compiler died of signal {-process.returncode}\n{log}"
            return Outcome(False, what, final=-process.returncode not in _FROM_OUTSIDE)
        if process.returncode:
            return Outcome(False, log, final=_KILLED.search(log) is None)
    return Outcome(True, "", final=True)
