"""Seconds of the suite's kernels on a CUDA device, at the suite's sizes and at larger ones.

Writes the coefficients fitted on them (``kernelassay.machines``) and the samples:

    python benchmarks/kernel_times.py OUT.json [SECONDS]
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from kernelassay.compile.launcher import parse_launcher
from kernelassay.cost_fit import SHORTEST, Sample, fit_kernels
from kernelassay.execute.bench import ProblemBench
from kernelassay.kernel import Launch
from kernelassay.machines import MACHINES
from kernelassay.substrate.lowering import bind
from kernelassay.suite import suite_problems
from kernelassay.timing import Work
from kernelassay.trace import meta
from kernelassay.work import unit_work
from tests.gpu.test_substrate_on_gpu import DeviceCode

FACTORS = (1, 16, 256, 2048)
MOST_BYTES = 2 << 30
BLOCKS = 132 * 8
"""What grid-stride kernels are given: eight blocks for each multiprocessor of an H200."""


def tensors(call: Any, traced: Any) -> dict[str, torch.Tensor]:
    """Device memory for all of a call's pointers; integers are zeros, which any index may be."""
    found = {}
    for parameter, name in (*call.operands, *call.outputs):
        about = meta(traced.nodes[name])
        dtype = getattr(torch, about.dtype)
        make = torch.rand if dtype.is_floating_point else torch.zeros
        found[parameter] = make(about.shape, dtype=dtype, device="cuda")
    return found


def seconds(code: DeviceCode, scalars: dict[str, Any], buffers: dict[str, torch.Tensor]) -> float:
    """The median of five runs after a first one, by the device's events; of one if that is long."""
    plan = parse_launcher(code.source).plan(scalars)
    memory = {name: tensor.data_ptr() for name, tensor in buffers.items()}
    scratch = [
        torch.empty(max(1, s.nbytes), dtype=torch.uint8, device="cuda") for s in plan.scratch
    ]
    memory |= {s.name: t.data_ptr() for s, t in zip(plan.scratch, scratch, strict=True)}
    stream = torch.cuda.current_stream().cuda_stream
    took: list[float] = []
    while len(took) < 6 and not (took and took[0] > 0.1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for step in plan.steps:
            if isinstance(step, Launch):
                code.launch(step, memory, stream)
            else:
                at = memory[step.buffer.buffer] + step.buffer.byte_offset
                code.call(code.driver.cuMemsetD8Async(at, step.value, step.nbytes, stream))
        end.record()
        torch.cuda.synchronize()
        took.append(start.elapsed_time(end) / 1000)
    return max(SHORTEST, statistics.median(took[1:] or took))


def measured(problem: Any, deadline: float) -> Iterator[dict[str, Any]]:
    """Samples of all kernels of a problem, at its sizes and with its first size enlarged."""
    bench = ProblemBench(problem, None)
    codes: dict[tuple[str, str], DeviceCode] = {}
    for factor in FACTORS:
        lever = problem.sizes[0]
        overrides = ((lever.name, factor * lever.value),) if factor > 1 else ()
        traced = bench._at(overrides)
        work = unit_work(bench.calls, traced)
        if work.peak_bytes > 4 * MOST_BYTES or traced.signature() != bench.traced.signature():
            return
        for call in bench.calls:
            buffers = tensors(call, traced)
            scalars = dict(bind(call, traced))
            if "max_blocks" in scalars:
                scalars["max_blocks"] = BLOCKS
            for style, source in call.sources.items():
                if time.monotonic() > deadline:
                    return
                key = (call.id, style)
                codes[key] = codes.get(key) or DeviceCode(source)
                found = work.calls[call.id].kernel
                yield {
                    "problem": problem.id,
                    "factor": factor,
                    "key": f"{call.template}/{style}",
                    "flops": found.flops,
                    "bytes": found.bytes,
                    "seconds": seconds(codes[key], scalars, buffers),
                }


def main() -> None:
    """Measure what fits in the time, and fit."""
    out, limit = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 480.0
    deadline = time.monotonic() + limit
    problems = list(suite_problems())
    random.Random(0).shuffle(problems)
    rows: list[dict[str, Any]] = []
    done = 0
    for problem in problems:
        if time.monotonic() > deadline:
            break
        try:
            rows.extend(measured(problem, deadline))
            done += 1
        except Exception as error:  # a size that a problem refuses ends it
            print(f"{problem.id}: {type(error).__name__}: {str(error)[:200]}")
            done += 1
    samples: dict[str, list[Sample]] = {}
    for row in rows:
        sample = Sample(Work(row["flops"], row["bytes"]), row["seconds"])
        samples.setdefault(row["key"], []).append(sample)
    facts = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    machine = fit_kernels(
        samples, MACHINES["cuda"], f"{len(rows)} kernel times of {done} suite problems on {facts}"
    )
    out.write_text(json.dumps({"machine": machine.to_json(), "samples": rows}))
    print(machine.provenance)


if __name__ == "__main__":
    main()
