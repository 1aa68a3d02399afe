"""What one mutant costs, beside the alternatives; all ratios from one run.

- ours: compiling distinct mutants in batches and running each on 15 small inputs, with two
  processes, in milliseconds of wall time per mutant;
- the way benchmarks build a candidate: ``torch.utils.cpp_extension.load_inline``, one extension per
  mutant (of the same kernels, as the host compiler sees them), for a few mutants;
- the checked build against the plain one, running the same originals on the same inputs.

Usage: python benchmarks/mutant_cost.py [--mutants 64] [--extensions 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from kernelassay import oracle
from kernelassay.campaign import machine
from kernelassay.compile.classify import classify
from kernelassay.compile.launcher import parse_launcher
from kernelassay.compile.source import device_text, kernel_signatures
from kernelassay.execute.cpu.build import BuildFailure, build_images, build_runtime
from kernelassay.execute.cpu.device import CpuDevice
from kernelassay.execute.cpu.toolchain import find_compiler
from kernelassay.mutation import mutants

INPUTS = 15
CU = Path(__file__).parent / "kernels"


def sizes(name: str) -> dict[str, int]:
    """Small sizes, the same for every mutant of a kernel."""
    return {"softmax": {"rows": 16, "cols": 200}, "matmul": {"m": 40, "n": 48, "k": 36}}[name]


def elements(name: str) -> dict[str, int]:
    """Elements of each buffer of a kernel."""
    s = sizes(name)
    if name == "softmax":
        return {"x": s["rows"] * s["cols"], "y": s["rows"] * s["cols"]}
    return {"a": s["m"] * s["k"], "b": s["k"] * s["n"], "c": s["m"] * s["n"]}


def output(name: str) -> str:
    """The buffer a kernel writes."""
    return {"softmax": "y", "matmul": "c"}[name]


def run_all(name: str, sources: dict[str, str], cache: Path, checked: bool) -> float:
    """Compile and run mutants; returns the seconds spent running (not compiling)."""
    compiler = find_compiler()
    device = CpuDevice(build_runtime(compiler, cache))
    images = build_images(sources, cache, compiler, checked=checked)
    counts = elements(name)
    buffers = {
        parameter: device.buffer(
            parameter, 4 * n, role="output" if parameter == output(name) else "operand"
        )
        for parameter, n in counts.items()
    }
    rng = np.random.default_rng(0)
    drawn = [
        {p: rng.random(n, dtype=np.float32) for p, n in counts.items() if p != output(name)}
        for _ in range(INPUTS)
    ]
    start = time.perf_counter()
    for key, image in images.items():
        if isinstance(image, BuildFailure):
            continue
        plan = parse_launcher(sources[key]).plan(sizes(name))
        for values in drawn:
            for parameter, value in values.items():
                buffers[parameter].array[:] = value.view(np.uint8)
            out = buffers[output(name)].array.view(np.float32)
            oracle.poison(out)
            device.run(image, plan, buffers, fuel=2_000_000)
            oracle.grade(out, out)
    return time.perf_counter() - start


def distinct_mutants(name: str, count: int, cache: Path) -> dict[str, str]:
    """The first distinct mutants of a kernel, spread over its rules."""
    text = (CU / f"{name}.cu").read_text()
    found = mutants(text, problem=name, call="k00", style="optimised").mutants
    identities = classify(text, [(m.id, m.source) for m in found], cache=cache)
    keep = [m for m in found if identities[m.id].status == "distinct"]
    step = max(1, len(keep) // count)
    return {m.id: m.source for m in keep[::step][:count]}


def ours(count: int) -> dict[str, float]:
    """Milliseconds per mutant with two processes, compile included, caches empty."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        compiler = find_compiler()
        build_runtime(compiler, cache)
        work = {name: distinct_mutants(name, count, cache) for name in ("softmax", "matmul")}
        total = sum(len(sources) for sources in work.values())
        start = time.perf_counter()
        with ProcessPoolExecutor(2) as pool:
            jobs = [pool.submit(run_all, n, s, cache, True) for n, s in work.items()]
            running = sum(job.result() for job in jobs)
        wall = time.perf_counter() - start
    return {
        "mutants": total,
        "inputs": INPUTS,
        "ms_per_mutant": 1000 * wall / total,
        "running_ms_per_mutant": 1000 * running / total,
    }


def extension_seconds(text: str, index: int, folder: Path) -> float:
    """Seconds that load_inline needs for one kernel as an extension."""
    from torch.utils.cpp_extension import load_inline

    from kernelassay.execute.cpu.build import SHIM

    kernel = kernel_signatures(text)[0].name
    binding = (
        "\n#undef for\n#undef while\n"
        f"void* entry() {{ return reinterpret_cast<void*>(&{kernel}); }}\n"
        "long probe(torch::Tensor x) { return x.numel() + (entry() != nullptr); }\n"
    )
    start = time.perf_counter()
    try:
        load_inline(
            name=f"mutant_{index}",
            cpp_sources=[f'#include "{SHIM / "cuda_cpu.h"}"\n{device_text(text)}{binding}'],
            functions=["probe"],
            extra_cflags=["-O1", "-Wno-attributes", "-w", "-undefined-ok"][:3],
            extra_ldflags=["-Wl,--unresolved-symbols=ignore-all"],
            build_directory=str(folder),
            with_cuda=False,
        )
    except ImportError:
        pass  # the shim's runtime symbols are not there at load time; it compiled and linked
    return time.perf_counter() - start
