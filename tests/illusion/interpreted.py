"""Runs kernels of the corpus; as a module, in a process whose Triton interprets.

Whether Triton interprets is fixed when it is imported, so those kernels need a process of their
own. It reads calls from its standard input and writes their outputs to its standard output.
"""

from __future__ import annotations

import importlib.util
import linecache
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelassay.illusion.cases import Case, inputs
from kernelassay.illusion.corpus import entry

Arrays = tuple[NDArray[Any], ...]
Call = tuple[str, Case | Arrays]
"""A kernel's name, and a case or the input arrays. (A case's strides do not survive pickling.)"""

HAS_TRITON = importlib.util.find_spec("triton") is not None


def arrays(call: Call) -> Arrays:
    name, given = call
    return tuple(inputs(given, entry(name).schema)) if isinstance(given, Case) else given


@cache
def function(name: str) -> Callable[..., Any]:
    text = entry(name).text
    file = f"<corpus {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)  # for triton.jit
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(text, file, "exec"), namespace)
    run: Callable[..., Any] = namespace["run"]
    return run


def run_here(calls: Sequence[Call]) -> list[NDArray[Any]]:
    outputs = []
    for call in calls:
        given: Sequence[Any] = arrays(call)
        if entry(call[0]).language == "triton":
            import torch

            given = [torch.from_numpy(array) for array in given]
        with np.errstate(all="ignore"):
            outputs.append(np.asarray(function(call[0])(*given)))
    return outputs


def run_interpreted(calls: Sequence[Call]) -> list[NDArray[Any]]:
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=pickle.dumps(list(calls)),
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    outputs: list[NDArray[Any]] = pickle.loads(done.stdout)
    return outputs


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps(run_here(pickle.loads(sys.stdin.buffer.read()))))
