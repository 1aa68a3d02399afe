"""How long `kernelassay check` takes: the whole command, and each candidate after the first.

    python benchmarks/check_latency.py [PROBLEM]... [--repeats N]

The command pays for processes that import torch, for inputs and for references. A process that
judges several candidates of one problem pays for these once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from columns import table

from kernelassay.check import Candidate, Checker, CheckOptions
from kernelassay.problem import Problem
from kernelassay.suite import suite_problems

PROBLEMS = ("suite/softmax_rows", "suite/layer_norm", "suite/matmul_rectangular", "suite/conv2d")
SEED = 20


def as_candidate(problem: Problem) -> str:
    """A right candidate: the reference itself."""
    return problem.source + "\n\nclass ModelNew(Model):\n    pass\n"


def command(problem: Problem, path: Path) -> float:
    """Seconds of one run of the command. Raises ``CalledProcessError`` if it does not accept."""
    arguments = ["check", str(path), "--problem", problem.id, "--seed", str(SEED)]
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "from kernelassay.cli import main; main()", *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def candidates(problem: Problem, source: str, repeats: int) -> list[float]:
    """Seconds of each check in a process that has the inputs and the references."""
    seconds = []
    with Checker(problem, CheckOptions(seed=SEED)) as checker:
        for _ in range(repeats):
            began = time.perf_counter()
            assert checker.check(Candidate("reference", source)).accepted
            seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    known = {problem.id: problem for problem in suite_problems()}
    columns = ("problem", "command, first", "command, warm (median)", "further candidate (median)")
    rows = []
    for name in options.problems:
        problem = known[name]
        source = as_candidate(problem)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "candidate.py")
            path.write_text(source)
            first, *warm = [command(problem, path) for _ in range(1 + options.repeats)]
        further = candidates(problem, source, options.repeats)
        rows.append(
            (
                name,
                f"{first:.1f} s",
                f"{statistics.median(warm):.1f} s",
                f"{statistics.median(further):.2f} s",
            )
        )
    print("\n".join(table(columns, rows)))
    print(f"{os.cpu_count()} cores, load average of the last 5 minutes {os.getloadavg()[1]:.1f}")


if __name__ == "__main__":
    main()
