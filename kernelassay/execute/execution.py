"""What a kernel text gave in a worker process for some arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from kernelassay.kernel import Finding


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a kernel text.

    ``outcome`` is a word of :mod:`kernelassay.cell`, or ``"raised"`` if the text's own Python code
    or the compiler raised; ``detail`` says more. ``output`` is ``None`` unless it is ``"ok"``, of
    whatever shape and dtype the kernel gave; ``unwritten`` counts its elements that still hold the
    unwritten mark. ``changed`` names inputs whose bytes changed, by position.
    """

    outcome: str
    detail: str
    output: NDArray[Any] | None
    unwritten: int = 0
    findings: tuple[Finding, ...] = ()
    changed: tuple[int, ...] = ()


class Bench(Protocol):
    """Runs kernel texts on arrays, in a process of its own."""

    def run(self, text: str, inputs: Sequence[NDArray[Any]]) -> Execution:
        """One run of a text's function ``run``."""
        ...

    def close(self) -> None:
        """End the process."""
        ...
