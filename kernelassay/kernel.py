"""The values that the phases of a run hand to one another: calls, launches, run results.

A *kernel source* is one CUDA C++ text (``.cu``): device code plus exactly one host function
``launch`` whose body holds the launch statements (``kernel<<<grid, block, shared>>>(args)``).
The geometry is therefore ordinary source and mutates like the rest. Sizes are run-time arguments
of ``launch``, so one source serves every shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

PLAIN = "plain"
OPTIMISED = "optimised"

Scalar = int | float | bool


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """Shape and dtype (``"float32"``, ``"int64"``, ``"bool"`` ...) of one contiguous array."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call site of a substrate: the kernel that stands in for some nodes of the traced graph.

    ``sources`` maps a style (:data:`PLAIN`, :data:`OPTIMISED`) to its ``.cu`` text; all styles
    share the parameter list of ``launch``. ``operands`` and ``outputs`` bind pointer parameters
    of ``launch`` to graph nodes, as (parameter name, node name) pairs. Operands are handed over
    contiguous. ``starts`` pairs an output's parameter with the node it begins as a copy of; other
    outputs begin unwritten. ``scalars`` computes the remaining parameters from a traced graph of
    the *same structure* at any shape; it raises ``UnsupportedError`` when the shape breaks an
    assumption. ``fixed`` has those of them that every graph of this structure shares, by name,
    or names an earlier one that is always equal.
    """

    id: str
    template: str
    sources: Mapping[str, str]
    operands: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    nodes: tuple[str, ...]
    scalars: Callable[[Mapping[str, Any]], Mapping[str, Scalar]] = field(compare=False)
    fixed: Mapping[str, int | str] = field(default_factory=dict)
    starts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class BuildFailure:
    """Why a source has no image: the compiler's ``log``, or the ``unsupported`` feature's name.

    ``transient`` tells that the compiler was ended: another time it may do.
    """

    log: str
    unsupported: str | None = None
    transient: bool = False


@dataclass(frozen=True, slots=True)
class PointerArgument:
    """A buffer, by its name in the launch environment, plus a byte offset into it."""

    buffer: str
    byte_offset: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch with its geometry evaluated. ``arguments`` are in parameter order."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[PointerArgument | Scalar, ...]


@dataclass(frozen=True, slots=True)
class Scratch:
    """A temporary buffer a ``launch`` function asked for; ``fill`` is its memset byte, if any."""

    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Memset:
    """``cudaMemset(buffer, value, nbytes)`` between launches."""

    buffer: PointerArgument
    value: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What one evaluation of ``launch`` does, in order."""

    scratch: tuple[Scratch, ...]
    steps: tuple[Launch | Memset, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of sanitizer finding of one run; a finding never ends a run.

    ``kind`` is one of ``oob-global-read``, ``oob-global-write``, ``oob-shared-read``,
    ``oob-shared-write``, ``race-shared``, ``race-global``, ``uninitialised-read``,
    ``barrier-divergence``, ``warp-divergence``, ``misaligned``, ``input-write``,
    ``oob-local``, ``order-dependent``. ``detail`` locates the first
    occurrence: kernel, block, thread, buffer and byte offset, and the other thread of a race.
    """

    kind: str
    count: int
    detail: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """How one run of a launch plan went.

    ``outcome`` is ``ok``, ``crash`` (an access past the slack, or a trap), ``timeout`` (fuel used
    up, or a deadlock), ``launch-failure`` (geometry no device accepts) or ``infrastructure``.
    ``fuel`` is the number of loop iterations used. ``written_inputs`` names the operand buffers
    the kernel wrote to.
    """

    outcome: str
    detail: str
    findings: tuple[Finding, ...]
    fuel: int
    written_inputs: tuple[str, ...]
