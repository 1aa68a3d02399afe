"""What generators of inputs are told, and what they answer.

A *blind* generator sees a :class:`Target`: a problem, its correct kernels and its ceilings. It is
told of no mutant, no cell and no input of a session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kernelassay.inputs import GENERATED, GIVEN, InputSpec
from kernelassay.problem import Problem

SIGN_MIXED, SAME_SIGN = "sign-mixed", "same-sign"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A correct kernel of a call: its template, the overloads it stands for, and its source."""

    call: str
    template: str
    ops: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Target:
    """One problem as a blind generator sees it.

    ``ceilings`` has, by kind of values, the largest scale at which correct kernels were seen to
    pass ``tolerance``; a kind that fails at scale 1 has none. ``parameters`` tells whether the
    module has parameters that an input may redraw. ``objection`` runs the correct kernels, and no
    other, on an input, and tells why it may not judge, if so.
    """

    problem: Problem
    kernels: tuple[Kernel, ...]
    ceilings: Mapping[str, float]
    tolerance: float
    parameters: bool
    objection: Callable[[InputSpec], str]

    @property
    def words(self) -> frozenset[str]:
        """The parts of the names of all operations and templates, in lower case."""
        names = [name for k in self.kernels for name in (k.template, *k.ops)]
        parts = (part for name in names for part in name.lower().replace(".", "_").split("_"))
        return frozenset(filter(None, parts))


@dataclass(frozen=True, slots=True)
class Wish:
    """One input that a generator would like, as specs from the most telling to the mildest.

    The first is taken on which the float32 reference is precise enough (or, if ``checked`` is
    false, the very first); its sizes become the nearest that the problem accepts. ``why`` names
    what it is aimed at.
    """

    alternatives: tuple[InputSpec, ...]
    why: str
    checked: bool = True


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a generator came up with for a problem: inputs, and what went wrong on the way.

    ``failures`` counts, by kind, what yielded no input: answers of a model, and wishes that the
    correct kernels objected to. ``aims`` tells, by id, which faults an input is aimed at, where the
    generator knows.
    """

    specs: tuple[InputSpec, ...]
    failures: Mapping[str, int] = field(default_factory=dict)
    aims: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one generated input.

    ``record`` is as a plan stores it. ``objection`` tells why the input may not judge at the
    protocol's tolerance. The checker rejects on it the ``killed`` mutants, and ``falsely`` those
    that it may not judge. ``witnessed`` are proven wrong. ``correct`` has the correct kernels that
    the checker rejects. ``margins`` have, by mutant, what the checker sees over its tolerance,
    infinite for an output that it rejects for a NaN, or that never came.
    """

    spec: InputSpec
    record: Mapping[str, Any]
    objection: str
    killed: frozenset[str] = frozenset()
    falsely: frozenset[str] = frozenset()
    witnessed: frozenset[str] = frozenset()
    infected: frozenset[str] = frozenset()
    correct: frozenset[str] = frozenset()
    margins: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutant that the checker misses: its fault as a diff, and why it survives (RIPR)."""

    id: str
    call: str
    family: str
    rule: str
    diff: str
    mechanism: str


@dataclass(frozen=True, slots=True)
class WhiteBox:
    """What a generator is told that is not blind.

    ``unobserved`` are the mutants that no input of the session proves wrong, each with the reason
    on all of its inputs. ``test`` gates an input and runs some of all these on it; ``cells`` tells
    how many kernels ran.
    """

    survivors: tuple[Survivor, ...]
    unobserved: tuple[Survivor, ...]
    test: Callable[[InputSpec, Sequence[str]], Tried]
    cells: Callable[[], int]


class Generator(Protocol):
    """Makes inputs for a problem; deterministic for a ``seed`` (one that asks a model: replayed).

    A ``blind`` one is told of no survivor.
    """

    name: str
    blind: bool

    def propose(self, target: Target, count: int, seed: int, seen: WhiteBox | None) -> Proposal:
        """At most ``count`` inputs, each of group ``generated``.

        Raises ``ProblemError`` if the problem does not run.
        """


def spec(
    rung: str,
    seed: int,
    transform: str,
    sizes: Mapping[str, int] | None = None,
    **conditions: Any,
) -> InputSpec:
    """A generated input; ``conditions`` are further fields of :class:`InputSpec`."""
    overrides = tuple(sorted((sizes or {}).items()))
    return named(InputSpec(rung, GENERATED, seed, transform, overrides, **conditions))


def named(made: InputSpec) -> InputSpec:
    """A generated input under an id that tells all of it; it begins with that of its generator."""
    given = made.transform.startswith(GIVEN)
    sizes = ",".join(f"{name}={size}" for name, size in made.overrides)
    values = "" if given else f"{made.transform}-s{made.seed}"
    rest = (
        (made.parameters, "official"),
        (made.layout, "contiguous"),
        (made.order, "forward"),
        (made.surroundings, "finite"),
    )
    said = (value for value, usual in rest if value != usual)
    # Of given values the first part names the file.
    first = made.id if given else made.id.split("/", 1)[0]
    return replace(made, id="/".join(filter(None, (first, sizes, values, *said))))
