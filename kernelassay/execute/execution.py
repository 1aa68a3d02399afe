"""What a kernel text gave in a worker process for some arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernelassay import oracle
from kernelassay.kernel import Finding

UNSUPPORTED = "unsupported"
"""What a campaign notes where a device computes something wrong and therefore refuses it."""
RAISED = "raised"
WRONG_OUTPUT = "wrong-output"


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a kernel text.

    ``outcome`` is a word of :mod:`kernelassay.cell`, ``"raised"`` if the text's own Python code or
    the compiler raised, or ``"wrong-output"`` if ``run`` gave something other than one array or
    tensor; ``detail`` says more. ``output`` is ``None`` unless it is ``"ok"``, of
    whatever shape and dtype the kernel gave; ``unwritten`` counts its elements that still hold the
    unwritten mark. ``changed`` names inputs whose bytes changed, by position.
    """

    outcome: str
    detail: str
    output: NDArray[Any] | None
    unwritten: int = 0
    findings: tuple[Finding, ...] = ()
    changed: tuple[int, ...] = ()

    def filled(self, value: float) -> NDArray[Any] | None:
        """The output with ``value`` in elements that were not written.

        0.0 is what an allocator often hands out, NaN what a checker sees that poisons; integers
        have no NaN and keep what they hold.
        """
        if self.output is None or not self.unwritten:
            return self.output
        if np.isnan(value) and self.output.dtype.kind not in "fc":
            return self.output
        filled = self.output.copy()
        filled.reshape(-1)[oracle.unwritten(self.output)] = value
        return filled


class Bench(Protocol):
    """Runs kernel texts on arrays, in a process of its own."""

    def run(self, text: str, inputs: Sequence[NDArray[Any]]) -> Execution:
        """One run of a text's function ``run``."""
        ...

    def close(self) -> None:
        """End the process."""
        ...
