"""Benches of the tests: NumPy texts, in a child process or, for texts of ours, in this one."""

import numpy as np

from kernelassay.errors import LimitError, ProblemError
from kernelassay.execute.execution import Execution
from kernelassay.execute.sandbox import run_limited


def _run(text, inputs):
    module = {}
    exec(compile(text, "kernel.py", "exec"), module)
    if "run" not in module:
        raise ProblemError("defines no function run", where="kernel.py")
    with np.errstate(all="ignore"):
        return np.asarray(module["run"](*inputs))


class NumpyBench:
    """Each run in a fresh child process, or in this process; counts them."""

    def __init__(self, *, forks=True):
        self.forks = forks
        self.runs = 0
        self.closed = False

    def run(self, text, inputs):
        self.runs += 1
        try:
            if not self.forks:
                return Execution("ok", "", _run(text, inputs))
            output = run_limited(
                _run, (text, inputs), seconds=5.0, memory_bytes=1 << 30, where="kernel.py"
            )
        except LimitError as error:
            return Execution("timeout", str(error), None)
        except Exception as error:
            return Execution("raised", str(error), None)
        return Execution("ok", "", output)

    def close(self):
        self.closed = True
