"""What splicing saves: seconds per mutant, spliced and with the whole substrate run.

Usage: python benchmarks/splicing.py [--executor cpu|cuda] [--mutants N] [PROBLEM...]

Each mutant runs on the first official input in three ways: spliced, with the short cut where its
output has the correct kernel's bits; without the short cut, so that everything downstream is
computed and graded; and as a whole substrate, where every call of the problem runs as our kernel
before the output is graded. PROBLEM is a problem of the suite; by default chains of several calls.
A mutant that ends its process is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence, Set
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from record import commit

from kernelassay import cell, population
from kernelassay.execute.bench import Candidate, InputBench, ProblemBench
from kernelassay.execute.serving import call_infos
from kernelassay.execute.toolbox import CpuToolbox, Toolbox
from kernelassay.host import machine
from kernelassay.inputs import official_inputs
from kernelassay.mutation import select
from kernelassay.problem import Problem
from kernelassay.styles import DEFAULT
from kernelassay.suite import suite_problems

PROBLEMS = (
    "suite/conv2d_groupnorm_maxpool_clamp",
    "suite/linear_swish_layernorm",
    "suite/matmul_gelu_softmax",
    "suite/conv2d_subtract_hardswish_min",
)
Ready = Callable[[ProblemBench], InputBench[Any]]


def cpu(cache: Path) -> tuple[Toolbox, Ready]:
    """The CPU executor, in this process."""
    from kernelassay.execute.cpu.bench import CpuInputBench
    from kernelassay.execute.cpu.device import CpuDevice

    tools = CpuToolbox.at(cache)
    device = CpuDevice(tools.runtime)
    return tools, lambda bench: CpuInputBench(bench, device, official_inputs()[0])


def cuda(cache: Path) -> tuple[Toolbox, Ready]:
    """The CUDA executor, in this process, which a mutant that faults ends."""
    import os

    from kernelassay.execute.cuda.bench import CudaInputBench
    from kernelassay.execute.cuda.child import open_device
    from kernelassay.execute.cuda.models import Models
    from kernelassay.execute.cuda.options import CudaOptions
    from kernelassay.execute.cuda.toolbox import CudaToolbox

    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    tools = CudaToolbox.at(cache, CudaOptions())
    device = open_device(tools.kernels, tools.options, tools.device)

    def ready(bench: ProblemBench) -> InputBench[Any]:
        spec = official_inputs()[0]
        bench.prepare_trace(spec)
        return CudaInputBench(bench, device, spec, tools.options, Models(), lambda: None)

    return tools, ready


def candidates(
    bench: ProblemBench, tools: Toolbox, most: int
) -> tuple[dict[str, Candidate], list[Candidate]]:
    """The originals, and some mutants that seldom fault or hang: of arithmetic and precision."""
    infos = call_infos(bench)
    rules = [rule.id for rule in select(("arithmetic", "precision"))]
    calls = [(info, list(DEFAULT)) for info in infos if set(DEFAULT) & set(info.sources)]
    name = bench.problem.id
    records, _ = population.mutant_records(name, calls, tools, rules, "nvrtc", most)
    plan = {
        "calls": [
            {"id": c.id, "styles": styles, "sources": dict(c.sources)} for c, styles in calls
        ],
        "benign": [],
        "mutants": records,
    }
    return population.candidates_of(plan, tools)


def spliced(bench: InputBench[Any], candidate: Candidate) -> bool:
    """Run a candidate as a campaign does; whether its output differs from the correct one."""
    return bench.run(candidate).infected


def downstream(bench: InputBench[Any], candidate: Candidate) -> bool:
    """Run a candidate, and whatever it wrote, compute what depends on it and grade that."""
    bound = bench._bind(candidate.call)
    baseline = bench._baseline(candidate.call, candidate.style)
    result = bench._launch(candidate, bound, baseline.limit, bench.spec.order)
    if result.outcome == cell.OK:
        bench._finish(candidate, bound, result, correct=baseline.cell)
    return True


def whole(bench: InputBench[Any], candidate: Candidate) -> bool:
    """The same with every other call run as its correct kernel."""
    for original in bench._originals.values():
        if original.call != candidate.call:
            bench._launch(original, bench._bind(original.call), None, bench.spec.order)
    return downstream(bench, candidate)


def study(
    problem: Problem, tools: Toolbox, ready: Ready, most: int, without: Set[str], told: Connection
) -> None:
    """One line for a problem; ``told`` hears of each mutant before its first run, and a None last.

    ``without`` are the mutants to leave out.
    """
    bench = ProblemBench(problem)
    originals, found = candidates(bench, tools, most)
    prepared = ready(bench)
    prepared.prepare(originals)
    usable = []
    for candidate in found:
        if candidate.id in without:
            continue
        told.send(candidate.id)
        if prepared.run(candidate).outcome == cell.OK:
            usable.append(candidate)
    told.send(None)
    infected = sum(spliced(prepared, c) for c in usable)
    times = {
        how.__name__: statistics.median(_seconds(how, prepared, usable) for _ in range(3))
        for how in (spliced, downstream, whole)
    }
    each = {name: 1e3 * seconds / max(1, len(usable)) for name, seconds in times.items()}
    print(
        f"{problem.id}: {len(originals)} calls, {len(usable)} mutants ({len(without)} that end"
        f" their process left out), {infected} infected; ms per mutant: spliced"
        f" {each['spliced']:.3f}, without the short cut {each['downstream']:.3f}"
        f" ({each['downstream'] / each['spliced']:.2f} times), whole {each['whole']:.3f}"
        f" ({each['whole'] / each['spliced']:.2f} times)",
        flush=True,
    )
    prepared.close()


def child(
    problem: Problem, executor: str, cache: Path, most: int, without: Set[str], told: Connection
) -> None:
    """Study one problem in a process of its own."""
    tools, ready = {"cpu": cpu, "cuda": cuda}[executor](cache)
    study(problem, tools, ready, most, without, told)


def study_all_that_run(problem: Problem, executor: str, cache: Path, most: int) -> None:
    """Study a problem, again from the start without each mutant that ended the process."""
    fork = multiprocessing.get_context("fork")
    without: set[str] = set()
    while True:
        heard, told = fork.Pipe(duplex=False)
        process = fork.Process(
            target=child, args=(problem, executor, cache, most, frozenset(without), told)
        )
        process.start()
        told.close()
        running: str | None = None
        with contextlib.suppress(EOFError):
            while True:
                running = heard.recv()
        process.join()
        if process.exitcode == 0:
            return
        if running is None:
            sys.exit(f"{problem.id}: the benchmark ended with {process.exitcode} outside a mutant")
        without.add(running)


def _seconds(
    how: Callable[[InputBench[Any], Candidate], bool],
    bench: InputBench[Any],
    found: Sequence[Candidate],
) -> float:
    start = time.perf_counter()
    for candidate in found:
        how(bench, candidate)
    return time.perf_counter() - start


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--executor", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--mutants", type=int, default=60)
    asked = parser.parse_args()
    facts = machine()
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    print(f"{facts['cpu']}, {asked.executor} executor, {now}, commit {commit()}", flush=True)
    known = {problem.id: problem for problem in suite_problems()}
    with tempfile.TemporaryDirectory() as cache:
        for name in asked.problems:
            study_all_that_run(known[name], asked.executor, Path(cache), asked.mutants)


if __name__ == "__main__":
    main()
