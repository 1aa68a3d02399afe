"""What the fixture ``execute`` is given for an output, and what it gives back."""

from dataclasses import dataclass

import numpy as np

from kernelassay.kernel import RunResult

NAN_PATTERN = 0x7FC5A5A5


@dataclass(frozen=True)
class Out:
    """An output argument: filled with a NaN pattern before the run."""

    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class Ran:
    result: RunResult
    outputs: list[np.ndarray]
    operands: list[np.ndarray]

    @property
    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.result.findings}

    @property
    def out(self) -> np.ndarray:
        return self.outputs[0]

    def finding(self, kind: str):
        return next(f for f in self.result.findings if f.kind == kind)
