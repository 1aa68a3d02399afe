"""What is asked of a check, and what it judges on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelassay.check import judge
from kernelassay.check.subject import Seconds
from kernelassay.check.values import Prepared
from kernelassay.execute.confinement import Limits
from kernelassay.inputs import QUICK, InputSpec

if TYPE_CHECKING:
    from kernelassay.user.kernel_file import KernelFile


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How candidates are judged.

    ``seed`` decides the hidden inputs; None takes it from the system. ``given`` inputs are judged
    instead of the battery of size ``battery``. Without ``shapes`` the problem's own sizes are all
    that a candidate must take. ``tolerance`` None means what the gate admits. ``trials`` bounds the
    search for a smaller failing input.
    """

    seed: int | None = None
    battery: str = QUICK
    given: tuple[InputSpec, ...] | None = None
    shapes: bool = True
    tolerance: float | None = None
    device: str = "cpu"
    limits: Limits = field(default_factory=Limits)
    seconds: Seconds = field(default_factory=Seconds)
    trials: int = 40


@dataclass(frozen=True, slots=True)
class Candidate:
    """A ``ModelNew`` file by its text, or a CUDA file."""

    name: str
    source: str
    kernel: KernelFile | None = None

    @property
    def digest(self) -> str:
        """SHA-256 over the text, in hex."""
        return hashlib.sha256(self.source.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Ready:
    """An input that judges, with its bounds."""

    prepared: Prepared
    bounds: judge.Bounds

    @property
    def spec(self) -> InputSpec:
        """The input."""
        return self.prepared.spec
