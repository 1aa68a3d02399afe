"""Run a command and keep what it printed in ``results/``, with machine, date and commit.

Usage: python benchmarks/record.py results/NAME.txt -- COMMAND...
"""

from __future__ import annotations

import datetime
import os
import shlex
import subprocess
import sys
from pathlib import Path

from kernelassay.host import machine


def commit() -> str:
    """The commit of this checkout, marked if the tree has changes other than results."""
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    changed = subprocess.run(
        [
            "git",
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            ":/",
            ":(top,exclude)results",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return f"{head} with changes" if changed else head


def main() -> None:
    """Record one command; ends with the command's exit code."""
    target, separator, *command = sys.argv[1:]
    if separator != "--" or not command:
        sys.exit(__doc__)
    facts = machine()
    header = [
        f"command: {shlex.join(command)}",
        f"commit:  {commit()}",
        f"date:    {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        f"machine: {facts['cpu']}, {facts['cores']} cores, {facts['system']},"
        f" Python {facts['python']}",
    ]
    # The commands of this environment, activated or not.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    path = Path(target)
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*header, "", done.stdout.rstrip(), ""]))
    sys.stdout.write(done.stdout)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
