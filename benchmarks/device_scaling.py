"""Cells per second with one GPU and with several, as a ratio.

Usage: python benchmarks/device_scaling.py SESSION LANES -- RUN-ARGUMENTS...

SESSION is a finished run with the CUDA executor and these arguments. Its plans and images are
copied, its cells are not, so that each run measures what is planned already: first on one device,
then on two, and so on, with LANES lanes for each device. The rate is that between the first and the
last tenth of the units, while all devices are busy. Prints each digest: they must be equal.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from kernelassay.execute.cuda.toolbox import devices
from kernelassay.session import Session


def rate(session: Path) -> tuple[int, float, float]:
    """Cells in all, seconds between a tenth and nine tenths of the units, cells a second there."""
    files = sorted(session.glob("cells/*/*.parquet"), key=lambda path: path.stat().st_mtime)
    counts = [pq.ParquetFile(path).metadata.num_rows for path in files]
    first, last = len(files) // 10, len(files) - 1 - len(files) // 10
    seconds = files[last].stat().st_mtime - files[first].stat().st_mtime
    return sum(counts), seconds, sum(counts[first + 1 : last + 1]) / seconds


def main() -> None:
    """See the module's docstring."""
    source, lanes, separator, *arguments = sys.argv[1:]
    if separator != "--":
        sys.exit(__doc__)
    rates = []
    with tempfile.TemporaryDirectory() as scratch:
        for count in range(1, len(devices()) + 1):
            copy = Path(scratch) / str(count)
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("cells", "lock"))
            chosen = ",".join(str(index) for index in range(count))
            start = time.perf_counter()
            command = ["kernelassay", "run", *arguments, "--session", str(copy)]
            command += ["--devices", chosen, "--jobs", str(count * int(lanes))]
            subprocess.run(
                command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            wall = time.perf_counter() - start
            cells, seconds, found = rate(copy)
            rates.append(found)
            print(
                f"{count} device(s): {cells} cells in {wall:.1f} s; {found:.0f} cells/s over"
                f" {seconds:.1f} s, {found / rates[0]:.2f} times one; digest"
                f" {Session.open(copy).digest()[:16]}"
            )


if __name__ == "__main__":
    main()
