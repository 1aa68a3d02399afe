"""Problems of a KernelBench checkout, and the seeds its checker draws inputs with."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from kernelassay.errors import UsageError
from kernelassay.problem import Problem, read_problem

_FOLDER = "KernelBench"


def kernelbench_problems(checkout: Path | str, level: int) -> tuple[Problem, ...]:
    """The problems of one level of a KernelBench checkout, by their numbers.

    Files are parsed, not executed. Raises ``UsageError`` when the folder is no checkout or has no
    such level, ``ProblemError`` when a file in it is no problem.
    """
    checkout = Path(checkout)
    root = checkout / _FOLDER
    if not root.is_dir():
        raise UsageError(
            "is no KernelBench checkout",
            where=str(checkout),
            hint=f"name the folder that contains {_FOLDER}/level1",
        )
    folder = root / f"level{level}"
    files = [path for path in folder.glob("*.py") if path.stem[:1].isdigit()]
    if not files:
        known = sorted(path.name for path in root.glob("level*") if path.is_dir())
        raise UsageError(
            f"has no level {level}",
            where=str(root),
            hint=f"it has {', '.join(known)}" if known else "the checkout is empty",
        )
    return tuple(
        read_problem(path, id=f"kernelbench-{level}/{path.stem}", level=level, origin="kernelbench")
        for path in sorted(files, key=_number)
    )


def _number(path: Path) -> tuple[int, str]:
    match = re.match(r"\d+", path.stem)
    return (int(match.group()) if match else 0, path.stem)


def checkout_commit(path: Path | str) -> str | None:
    """The commit a checkout is at; None when the folder itself is no git work tree."""
    path = Path(path)

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(path), "rev-parse", *arguments],
                capture_output=True,
                text=True,
                check=False,
                timeout=30,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    top = git("--show-toplevel")
    # A copy without .git inside another repository must not report that repository's commit.
    if top is None or Path(top).resolve() != path.resolve():
        return None
    return git("--verify", "HEAD")


def official_seeds(trials: int = 5, seed: int = 42) -> tuple[int, ...]:
    """The input seeds of KernelBench's correctness trials.

    Its checker (``run_and_check_correctness`` in ``src/kernelbench/eval.py``, commit 423217d)
    calls ``torch.manual_seed(seed)`` once and takes one ``torch.randint(0, 2**32 - 1, (1,))`` per
    trial; each trial then seeds with that number and calls ``get_inputs()``. A generator of our
    own yields the same stream and leaves torch's global one alone.
    """
    import torch

    stream = torch.Generator().manual_seed(seed)
    return tuple(
        int(torch.randint(0, 2**32 - 1, (1,), generator=stream).item()) for _ in range(trials)
    )
