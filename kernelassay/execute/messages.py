"""What a worker process is asked, and the plain values that it answers with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelassay.cell import Cell
from kernelassay.compile.fixed import Fixed, Sizes
from kernelassay.input_shapes import Small
from kernelassay.inputs import InputSpec
from kernelassay.kernel import Scalar
from kernelassay.problem import Problem
from kernelassay.timing import Timing

if TYPE_CHECKING:
    from kernelassay.execute.bench import Candidate
    from kernelassay.execute.toolbox import Toolbox

Arguments = Mapping[str, Mapping[str, Scalar]]
"""The scalar arguments of all calls at some sizes, by the calls' ids and the parameters' names."""


@dataclass(frozen=True, slots=True)
class CallInfo:
    """The part of a call that leaves the worker; ``ops`` are the overloads it stands in for.

    ``fixed`` is as in :mod:`kernelassay.compile.fixed`.
    """

    id: str
    template: str
    sources: Mapping[str, str]
    nodes: tuple[str, ...]
    ops: tuple[str, ...] = ()
    fixed: Fixed = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trials:
    """The inputs of a problem, and what its calls are given at the sizes it was tried at.

    ``tried`` pairs the sizes that may move with the arguments of all calls: first at the sizes the
    moves start from, then each size moved alone, where it can be, and the inputs' sizes.
    """

    specs: tuple[InputSpec, ...]
    tried: tuple[tuple[Sizes, Arguments], ...]


@dataclass(frozen=True, slots=True)
class Beat:
    """Says that a worker waits for something and is not stuck; no reply in itself."""


@dataclass(frozen=True, slots=True)
class Open:
    """Load, trace and lower a problem; the reply is a tuple of :class:`CallInfo`."""

    problem: Problem
    tools: Toolbox


@dataclass(frozen=True, slots=True)
class Battery:
    """Settle the inputs of the open problem; the reply is :class:`Trials`.

    With ``small``, which belongs to it, the problem runs at its official sizes, and the battery of
    this ``size`` beside them. ``kinds`` are those of :mod:`protocol_inputs` to draw, too.
    """

    size: str
    small: Small | None = None
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measure:
    """Run candidates on one input of the open problem.

    The replies are the input's facts, if these are finite then :class:`Prepared`, and then a cell
    and its seconds per candidate, in order; None are the seconds of one that are told as wasted
    with a process. Each ``timing.Replacement`` of such a process comes before one of these.
    """

    spec: InputSpec
    originals: Mapping[str, Candidate]
    candidates: tuple[Candidate, ...]
    check_order: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """The cells of originals and controls, and what it took to come so far.

    ``runs`` is how often each candidate will run, whatever it does.
    """

    cells: list[Cell]
    timing: Timing
    runs: int = 1
