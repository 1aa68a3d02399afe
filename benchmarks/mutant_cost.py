"""What one mutant costs, beside the alternatives; every ratio comes from one run.

- *ours*: compiling distinct mutants in batches and running each on 15 small inputs, two processes,
  empty caches: milliseconds of wall time per mutant;
- *identity*: telling mutants apart by NVRTC, two compiler processes, which comes before;
- *extension*: how benchmarks build a candidate (``torch.utils.cpp_extension.load``), one extension
  per mutant, for a few of the same mutants (their device code through the same shim, so that no
  CUDA toolkit is needed); compiling alone, nothing is run;
- *checked*: the price of the checked build over the plain one, running the same mutants.

Usage: python benchmarks/mutant_cost.py [--mutants 120] [--extensions 3]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from kernelassay import oracle
from kernelassay.compile.classify import classify
from kernelassay.compile.launcher import parse_launcher
from kernelassay.execute.cpu import toolchain
from kernelassay.execute.cpu.build import Image, build_images, build_runtime
from kernelassay.execute.cpu.device import CpuDevice
from kernelassay.execute.cpu.toolchain import find_compiler
from kernelassay.execute.cpu.translate import namespaced
from kernelassay.host import machine
from kernelassay.mutation import mutants

INPUTS = 15
FUEL = 2_000_000
KERNELS = Path(__file__).parent / "kernels"


class Kernel:
    """A benchmark kernel: sizes, and elements of each buffer; the last buffer is the output."""

    def __init__(self, name: str, scalars: dict[str, int], buffers: dict[str, int]) -> None:
        self.name = name
        self.source = (KERNELS / f"{name}.cu").read_text()
        self.scalars = scalars
        self.buffers = buffers
        self.output = list(buffers)[-1]


SOFTMAX = Kernel("softmax", {"rows": 16, "cols": 200}, {"x": 3200, "y": 3200})
MATMUL = Kernel("matmul", {"m": 40, "n": 48, "k": 36}, {"a": 1440, "b": 1728, "c": 1920})


def distinct_mutants(kernel: Kernel, count: int, cache: Path) -> dict[str, str]:
    """Distinct mutants of a kernel, spread evenly over its rules."""
    found = mutants(kernel.source, problem=kernel.name, call="k00", style="optimised").mutants
    identities = classify(kernel.source, [(m.id, m.source) for m in found], jobs=2, cache=cache)
    keep = [m for m in found if identities[m.id].status == "distinct"]
    step = max(1, len(keep) // count)
    return {m.id: m.source for m in keep[::step][:count]}


def compile_and_run(
    kernel: Kernel, sources: dict[str, str], cache: Path, checked: bool
) -> dict[str, float]:
    """Build the mutants and run each on all inputs; wall seconds of the two parts."""
    compiler = find_compiler()
    device = CpuDevice(build_runtime(compiler, cache))
    start = time.perf_counter()
    images = build_images(sources, cache, compiler, checked=checked)
    built = time.perf_counter()
    buffers = {
        name: device.buffer(name, 4 * n, role="output" if name == kernel.output else "operand")
        for name, n in kernel.buffers.items()
    }
    rng = np.random.default_rng(0)
    operands = [name for name in kernel.buffers if name != kernel.output]
    drawn = [
        {name: rng.random(kernel.buffers[name], dtype=np.float32) for name in operands}
        for _ in range(INPUTS)
    ]
    out = buffers[kernel.output].array.view(np.float32)
    for key, image in images.items():
        if not isinstance(image, Image):
            continue
        plan = parse_launcher(sources[key]).plan(kernel.scalars)
        for values in drawn:
            for name, value in values.items():
                buffers[name].array[:] = value.view(np.uint8)
            oracle.poison(out)
            device.run(image, plan, buffers, fuel=FUEL)
            oracle.grade(out, values[operands[0]][:1].repeat(out.size))
    return {"compile": built - start, "run": time.perf_counter() - built}


def measure_identity() -> float:
    """Milliseconds of wall time per generated mutant, with an empty cache."""
    start, count = time.perf_counter(), 0
    for kernel in (SOFTMAX, MATMUL):
        found = mutants(kernel.source, problem=kernel.name, call="k00", style="optimised").mutants
        with tempfile.TemporaryDirectory() as folder:
            pairs = [(m.id, m.source) for m in found]
            count += len(classify(kernel.source, pairs, jobs=2, cache=Path(folder)))
    return 1000 * (time.perf_counter() - start) / count


def measure_ours(count: int, checked: bool) -> dict[str, float]:
    """Milliseconds per mutant with two processes and empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        build_runtime(find_compiler(), cache)
        work = {k: distinct_mutants(k, count // 2, cache) for k in (SOFTMAX, MATMUL)}
        total = sum(map(len, work.values()))
        start = time.perf_counter()
        with ProcessPoolExecutor(len(work)) as pool:
            jobs = [pool.submit(compile_and_run, k, s, cache, checked) for k, s in work.items()]
            parts = [job.result() for job in jobs]
        wall = time.perf_counter() - start
    return {
        "mutants": total,
        "inputs": INPUTS,
        "ms_per_mutant": 1000 * wall / total,
        "compile_ms": 1000 * sum(p["compile"] for p in parts) / total,
        "run_ms": 1000 * sum(p["run"] for p in parts) / total,
    }


BINDING = """
#include <torch/extension.h>
torch::Tensor probe(torch::Tensor x) { return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("probe", &probe); }
"""


def measure_extension(count: int) -> float:
    """Mean seconds that one extension takes: torch's binding beside the mutant's device code."""
    from torch.utils.cpp_extension import load

    shim = Path(toolchain.__file__).parent / "shim" / "shim.h"
    with tempfile.TemporaryDirectory() as folder:
        sources = list(distinct_mutants(SOFTMAX, count, Path(folder)).values())
        start = time.perf_counter()
        for index, source in enumerate(sources):
            place = Path(folder) / f"mutant_{index}"
            place.mkdir()
            device, _ = namespaced(source, "mutant")
            (place / "binding.cpp").write_text(BINDING)
            (place / "kernel.cpp").write_text(f'#include "{shim}"\n{device}')
            files = [str(place / name) for name in ("binding.cpp", "kernel.cpp")]
            try:
                load(place.name, files, extra_cflags=["-O1", "-w"], build_directory=str(place))
            except ImportError:
                continue  # built and linked; the executor's runtime is not there to load against
        return (time.perf_counter() - start) / len(sources)


def main() -> None:
    """Measure and print; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=120)
    parser.add_argument("--extensions", type=int, default=3)
    options = parser.parse_args()
    checked = measure_ours(options.mutants, checked=True)
    plain = measure_ours(options.mutants, checked=False)
    identity_ms = measure_identity()
    extension_ms = 1000 * measure_extension(options.extensions)
    result: dict[str, Any] = {
        "machine": machine(),
        "ours": checked,
        "plain_build": plain,
        "identity_ms_per_mutant": identity_ms,
        "extension_ms_per_mutant": extension_ms,
        "times_cheaper": extension_ms / checked["ms_per_mutant"],
        "times_cheaper_with_identity": extension_ms / (checked["ms_per_mutant"] + identity_ms),
        "checked_over_plain_run": checked["run_ms"] / plain["run_ms"],
        "checked_over_plain_compile": checked["compile_ms"] / plain["compile_ms"],
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
