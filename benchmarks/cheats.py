"""The corpus of cheats and correct kernels, before `kernelassay check` and the official check.

    python benchmarks/cheats.py [--seed N] [--json]

The official check is written anew from its description (KernelBench, `run_and_check_correctness` in
`src/kernelbench/eval.py`, commit 423217d): reference and candidate are built under one seed in one
process, run on the five official inputs one after the other, and compared by shape and
`torch.allclose`. Each check of it has a process of its own here, so that what a candidate patches
does not outlive it. It knows no `.cu` file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory

from columns import table

from kernelassay.cheats import Entry, corpus
from kernelassay.check import Checker, CheckOptions
from kernelassay.check.replay import Recorded
from kernelassay.errors import ProblemError
from kernelassay.execute.sandbox import run_limited
from kernelassay.problem import MODEL_SEED, Problem, load
from kernelassay.suite import suite_problems

TOLERANCES = (1e-2, 1e-4)
SECONDS, MEMORY = 60.0, 4 << 30


@dataclass(frozen=True, slots=True)
class Row:
    """One entry. ``official`` has, for each tolerance, whether it passes, or that it ended."""

    id: str
    cheat: bool
    problem: str
    accepted: bool
    reason: str
    defence: str
    official: tuple[str, ...]


def official(problem: Problem, source: str, tolerance: float) -> str:
    """The official check's word on a candidate: passes, rejected, or what else happened."""
    with TemporaryDirectory() as folder:
        try:
            passed = run_limited(
                _official,
                (problem, source, tolerance, folder),
                seconds=SECONDS,
                memory_bytes=MEMORY,
                where=problem.id,
            )
        except ProblemError as error:
            return "exits with 0" if "exited with 0" in str(error) else "rejected"
    return "passes" if passed else "rejected"


def _official(problem: Problem, source: str, tolerance: float, folder: str) -> bool:
    import torch

    from kernelassay.kernelbench import official_seeds

    os.chdir(folder)
    loaded = load(problem)
    torch.manual_seed(MODEL_SEED)
    init = loaded.get_init_inputs()
    with torch.no_grad():
        torch.manual_seed(MODEL_SEED)
        model = loaded.model_class(*init)
        space: dict[str, object] = {}
        exec(compile(source, "candidate", "exec", dont_inherit=True), space)
        torch.manual_seed(MODEL_SEED)
        candidate = space["ModelNew"](*init)  # type: ignore[operator]
        for seed in official_seeds():
            torch.manual_seed(seed)
            inputs = loaded.get_inputs()
            output = model(*inputs)
            found = candidate(*inputs)
            if output.shape != found.shape:
                return False
            if not torch.allclose(output, found, atol=tolerance, rtol=tolerance):
                return False
    return True


def rows(seed: int) -> Iterator[Row]:
    """A row for each entry that this machine can run, problem by problem."""
    entries: dict[str, list[Entry]] = {}
    for entry in corpus():
        if not entry.needs:
            entries.setdefault(entry.problem, []).append(entry)
    problems = {problem.id: problem for problem in suite_problems()}
    # First, while no process of a check is there: a cheat of the official check has our open files.
    words = {
        entry.id: _words(problems[name], entry) for name, some in entries.items() for entry in some
    }
    for name, chosen in entries.items():
        problem = problems[name]
        with Checker(problem, CheckOptions(seed=seed, trials=0)) as checker:
            for entry in chosen:
                recorded = Recorded.of(entry.path, problem, checker.options)
                verdict = checker.check(recorded.candidate)
                rejection = verdict.rejection
                yield Row(
                    entry.id,
                    entry.is_cheat,
                    name,
                    verdict.accepted,
                    rejection.reason if rejection else "",
                    rejection.defence if rejection else "",
                    words[entry.id],
                )


def _words(problem: Problem, entry: Entry) -> tuple[str, ...]:
    if entry.path.suffix == ".cu":
        return ("-",) * len(TOLERANCES)
    source = entry.path.read_text(encoding="utf-8")
    return tuple(official(problem, source, tolerance) for tolerance in TOLERANCES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=20, help="seed of the hidden inputs")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args()
    found = sorted(rows(options.seed), key=lambda row: (not row.cheat, row.id))
    if options.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
    else:
        show(found)
    wrong = [row.id for row in found if row.accepted == row.cheat]
    return 1 if wrong else 0


def show(found: list[Row]) -> None:
    """The table, and its sums."""
    named = [f"official {t:g}" for t in TOLERANCES]
    for cheat in (True, False):
        part = [row for row in found if row.cheat is cheat]
        head = ("cheat" if cheat else "correct kernel", "check", *named, "caught by")
        body = [
            (row.id, "accepted" if row.accepted else "rejected", *row.official, row.defence)
            for row in part
        ]
        print("\n".join(table(head, body)))
        print(f"\n{len(part)}; check rejects {sum(not row.accepted for row in part)}", end="")
        for index, tolerance in enumerate(TOLERANCES):
            words = [row.official[index] for row in part if row.official[index] != "-"]
            rejected = sum(word != "passes" for word in words)
            print(f"; the official check at {tolerance:g} {rejected} of {len(words)}", end="")
        print("\n")


if __name__ == "__main__":
    sys.exit(main())
