"""What the tests of rules share: mutated texts, and whether a text compiles for a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from kernelassay.mutation.engine import apply
from kernelassay.mutation.rule import Example, Rule
from kernelassay.mutation.tree import KernelTree


def rewritten(rule: Rule, source: str) -> list[str]:
    """All texts that ``rule`` turns ``source`` into."""
    return [apply(source, found) for found in rule.find(KernelTree(source))]


def cases(rules: tuple[Rule, ...]) -> list[object]:
    """One test parameter per example of ``rules``."""
    return [
        pytest.param(rule, example, id=f"{rule.id}-{number}")
        for rule in rules
        for number, example in enumerate(rule.examples)
    ]


def assert_parses(rule: Rule, example: Example) -> None:
    """Every text of an example is again a kernel source; a syntax error raises."""
    for text in example.after:
        assert KernelTree(text).kernels, rule.id


def compile_error(source: str) -> str:
    """The log of compiling the device code of ``source`` with NVRTC; empty if it compiles."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    tree = KernelTree(source)
    device = tree.span(0, tree.launcher.start_byte).encode()
    options = [b"-arch=sm_90", b"-fdevice-syntax-only", *_includes()]
    options.append(b"-DINFINITY=__int_as_float(0x7f800000)")
    _, program = nvrtc.nvrtcCreateProgram(device, b"kernel.cu", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = b""
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    return log.decode(errors="replace")


def _includes() -> list[bytes]:
    found = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in found.submodule_search_locations or ()] if found else []
    headers = [header for root in roots for header in root.rglob("cuda_fp16.h")]
    if not headers:
        pytest.skip("the CUDA runtime headers are not installed")
    return [f"-I{headers[0].parent}".encode()]
