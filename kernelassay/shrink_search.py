"""One search for sizes: what a candidate must satisfy, and the report of what was done.

Everything here EXECUTES problem code: call it inside a worker process only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernelassay.errors import ProblemError, UnsupportedError
from kernelassay.measure import FLOORS, Extent, Measure, TooLargeError, measure
from kernelassay.problem import Lever, Problem, literals, load

_BYTES_PER_ELEMENT = 4

SPREAD_SHARE = 1 / 32
"""How much of the original output's spread must stay. Honest shrinking may lose some of it: the
spread of a sum over n terms of both signs grows with the root of n."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one forward pass may cost: ``work`` in FLOP or elements touched (see ``Measure``)."""

    work: int = 2_000_000
    tensor_bytes: int = 128 << 10
    operations: int = 500
    longest: int = 1_024
    evaluations: int = 240

    @property
    def elements(self) -> int:
        """The largest number of elements a tensor may have."""
        return self.tensor_bytes // _BYTES_PER_ELEMENT

    def times(self, work: int, elements: int) -> Budget:
        """A budget with more work and larger tensors."""
        return replace(self, work=work * self.work, tensor_bytes=elements * self.tensor_bytes)


Scaled = tuple[str, int, int]  # a size's name, before and after


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of an output (see ``Measure``) and the sizes, as ``scaled``, it was measured at.

    No sizes means the original ones. Where those are too large to run, the batch gives way first,
    then all sizes alike.
    """

    value: float
    constant: bool
    scaled: tuple[Scaled, ...] = ()


@dataclass(frozen=True, slots=True)
class ShrinkReport:
    """What :func:`shrink` did. ``reason`` is empty on success, else why nothing was changed.

    ``scaled`` holds module-level sizes by name, and literals inside classes and functions, in
    place of which another number is read, as ``@<line>:<column>``. ``spread`` is the output's,
    ``original`` the one it was held against; None where that could not be measured.
    """

    problem: Problem
    scaled: tuple[Scaled, ...] = ()
    work: int = 0
    elements: int = 0
    evaluations: int = 0
    reason: str = ""
    notes: tuple[str, ...] = ()
    spread: float | None = None
    original: Spread | None = None

    @property
    def official(self) -> bool:
        """Whether the sizes are still the problem's own."""
        return self.problem.official_shape


@dataclass(slots=True)
class Search:
    """Trials of one problem under a budget; sizes are measured once per allowance."""

    problem: Problem
    budget: Budget
    levers: tuple[Lever, ...] = ()
    evaluations: int = 0
    limit: int = 1
    allowance: int = 1
    network: bool = False
    refusals: Counter[str] = field(default_factory=Counter)
    flat: tuple[dict[str, int], str] | None = None
    original: Spread | None = None
    least_work: int | None = None
    measured: dict[tuple[tuple[str, int], ...], Measure] = field(default_factory=dict)
    tried: dict[tuple[int, tuple[tuple[str, int], ...]], str] = field(default_factory=dict)
    extents: tuple[Extent, ...] = ()
    original_work: Measure | None = None

    def affords_original(self) -> bool:
        """Whether the original sizes are within the budget, without computing any data."""
        try:
            found = measure(load(self.problem), fake=True)
        except Exception:
            # Data-dependent code does not run without data: the plain floors hold then, and the
            # element limit guards the real run.
            return True
        self.extents = found.extents
        self.original_work = found
        return not self._over_budget(found)

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Run at ``sizes``; False, with a reason counted, when they do not do."""
        key = (self.allowance, tuple(sizes.items()))
        if key not in self.tried:
            if self.evaluations >= self.limit:
                return False
            self.evaluations += 1
            before = self.refusals.copy()
            self.tried[key] = "" if self._runs(sizes) else next(iter(self.refusals - before))
        return not self.tried[key]

    def _runs(self, sizes: Mapping[str, int]) -> bool:
        try:
            found = measure(load(self.problem, sizes), element_limit=16 * self.budget.elements)
        except TooLargeError:
            return self._refuse("too large")
        except (ProblemError, UnsupportedError) as error:
            return self._refuse(error.what)
        if self._over_budget(found):
            if found.work > self.allowance * self.budget.work:
                self.least_work = min(self.least_work or found.work, found.work)
            return self._refuse("too large")
        if not found.finite:
            return self._refuse("the output is not finite")
        short = self._too_short(found)
        if sizes and short:
            return self._refuse(short)
        self.measured[tuple(sizes.items())] = found
        flat = self._too_flat(found) if sizes else ""
        if flat:
            self.flat = self.flat or (dict(sizes), flat)
            return self._refuse(flat)
        return True

    def report(self, sizes: Mapping[str, int], *notes: str) -> ShrinkReport:
        """The outcome at ``sizes``, which must have been found to fit."""
        found = self.measured[tuple(sizes.items())]
        scaled = scaled_by(self.problem, sizes)
        shrunk = tuple((name, size) for name, _, size in scaled)
        batches = {lever.name for lever in self.problem.sizes if lever.is_batch}
        lost = [
            name
            for name, old, new in scaled
            if old % 8 == 0 and new % 8 and name not in batches and not name.startswith("@")
        ]
        if lost:
            notes = (*notes, f"no longer multiples of 8: {', '.join(lost)}")
        if found.constant and (not sizes or (self.original and self.original.constant)):
            notes = (*notes, "the original's output is constant")
        return ShrinkReport(
            replace(self.problem, shrunk=shrunk),
            scaled,
            found.work,
            found.elements,
            self.evaluations,
            "",
            notes,
            found.spread,
            self.original if sizes else Spread(found.spread, found.constant),
        )

    def _over_budget(self, found: Measure) -> bool:
        return (
            found.work > self.allowance * self.budget.work
            or found.elements > self.allowance * self.budget.elements
            or found.operations > self.budget.operations
        )

    def _too_flat(self, found: Measure) -> str:
        """How the output lost what the original's had; empty when it did not."""
        original = self.original
        if found.constant:
            return "" if original and original.constant else "the output is constant"
        if original and found.spread < SPREAD_SHARE * original.value:
            return f"the output spreads {found.spread:.1e} instead of {original.value:.1e}"
        return ""

    def _refuse(self, reason: str) -> bool:
        self.refusals[reason] += 1
        return False

    def _floor(self, extent: Extent) -> int:
        """A network's sums may be half as long as others; statistics need all of it."""
        statistics = "native" in extent.operation or "softmax" in extent.operation
        halved = self.network and extent.kind == "reduced" and not statistics
        return FLOORS[extent.kind] // 2 if halved else FLOORS[extent.kind]

    def _too_short(self, found: Measure) -> str:
        """Which extent fell below its floor and below the original; empty when none did.

        In a network it is enough that one window of an operation has the extent: the operations
        share their kernels, and the last layers of a network see few pixels.
        """
        extents = _widest(found.extents) if self.network else found.extents
        floors = [self._floor(extent) for extent in extents]
        if all(e.length >= floor for e, floor in zip(extents, floors, strict=True)):
            return ""
        original = _widest(self.extents) if self.network else self.extents
        same = [(e.operation, e.kind) for e in original] == [(e.operation, e.kind) for e in extents]
        for index, extent in enumerate(extents):
            if same:
                before = original[index].length
            else:
                before = min(
                    (
                        e.length
                        for e in original
                        if e.operation == extent.operation and e.kind == extent.kind
                    ),
                    default=floors[index],
                )
            if extent.length < min(before, floors[index]):
                return f"{extent.operation} would run over {extent.length} instead of {before}"
        return ""


def _widest(extents: tuple[Extent, ...]) -> tuple[Extent, ...]:
    """All reductions, and the largest window and interior of each operation."""
    largest: dict[tuple[str, str], Extent] = {}
    for extent in extents:
        if extent.kind != "reduced":
            key = (extent.operation, extent.kind)
            largest[key] = max(extent, largest.get(key, extent), key=lambda e: e.length)
    return (*(e for e in extents if e.kind == "reduced"), *largest.values())


def scaled_by(problem: Problem, sizes: Mapping[str, int]) -> tuple[Scaled, ...]:
    """Names, original and new values of the ``sizes`` that change."""
    original = {lever.name: lever.value for lever in problem.levers}
    original |= {literal.name: literal.value for literal in literals(problem)}
    return tuple(
        (name, original[name], size) for name, size in sizes.items() if size != original[name]
    )
