"""Run a campaign that is killed with -9, its worker first and then its coordinator, and resume it.

Prints the digest of the resumed run; compare it with that of a run left alone.

Usage: python benchmarks/interrupted.py SESSION -- RUN-ARGUMENTS...
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

KILL_WORKER_AFTER = 5
KILL_COORDINATOR_AFTER = 25


def units(session: Path) -> int:
    """Finished units of work."""
    return len(list(session.glob("cells/*/*.parquet")))


def descendants(pid: int) -> list[int]:
    """Process ids below ``pid``, nearest first (Linux)."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found[1:]


def wait_for(session: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    """Until ``count`` units are finished."""
    while units(session) < count:
        if process.poll() is not None:
            sys.exit("the run ended before it could be killed")
        time.sleep(0.1)


def main() -> None:
    """See the module's docstring."""
    session, separator, *arguments = sys.argv[1:]
    if separator != "--":
        sys.exit(__doc__)
    command = ["kernelassay", "run", *arguments, "--session", session]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_for(Path(session), KILL_WORKER_AFTER, process)
    worker = descendants(process.pid)[-1]
    os.kill(worker, signal.SIGKILL)
    print(f"killed -9 a worker after {units(Path(session))} units")
    wait_for(Path(session), KILL_COORDINATOR_AFTER, process)
    process.kill()
    process.wait()
    print(f"killed -9 the coordinator after {units(Path(session))} units")
    done = subprocess.run(command, stderr=subprocess.DEVNULL, text=True, check=True, stdout=-1)
    print(f"resumed to the end: {units(Path(session))} units")
    print(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
