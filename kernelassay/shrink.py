"""Scale a problem's module-level sizes down until one forward pass fits a budget.

The search starts small, keeps the first sizes that run and still test the operation, and grows
them back toward the budget. Where module-level integers alone do not do, it also scales the sizes
written inside classes and functions, cuts repeated layers, and then allows larger budgets
(:mod:`kernelassay.shrink_network`). Everything here EXECUTES problem code: call it inside a worker
process only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from kernelassay.errors import ProblemError
from kernelassay.measure import FLOORS, Extent, Measure, TooLargeError, measure
from kernelassay.problem import Lever, Problem, literals, load
from kernelassay.shrink_network import network_candidates

SMALL_BATCH = 2
NORM_BATCH = 8  # batch normalisation of plain features reduces over the batch
SMALLEST = 8
SMALLEST_SPATIAL = 4  # only where wide kernels leave no other choice
TOO_LARGE = "too large"
NETWORK_LITERALS = 4
NETWORK_TRIALS = 4
# Work and elements of whole networks, as multiples of the budget's: at most, and wanted.
NETWORK_BUDGET = (20, 16)
NETWORK_WANTED = (2, 8)
NETWORK_PATIENCE = 16
_BYTES_PER_ELEMENT = 4


@dataclass(frozen=True, slots=True)
class Budget:
    """What one forward pass may cost: ``work`` in FLOP or elements touched (see ``Measure``)."""

    work: int = 2_000_000
    tensor_bytes: int = 128 << 10
    operations: int = 500
    longest: int = 1_024
    evaluations: int = 160

    @property
    def elements(self) -> int:
        """The largest number of elements a tensor may have."""
        return self.tensor_bytes // _BYTES_PER_ELEMENT

    def times(self, work: int, elements: int) -> Budget:
        """A budget with more work and larger tensors."""
        return replace(self, work=work * self.work, tensor_bytes=elements * self.tensor_bytes)


@dataclass(frozen=True, slots=True)
class ShrinkReport:
    """What :func:`shrink` did. ``reason`` is empty on success, else why nothing was changed."""

    problem: Problem
    scaled: tuple[tuple[str, int, int], ...] = ()
    work: int = 0
    elements: int = 0
    evaluations: int = 0
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def official(self) -> bool:
        """Whether the sizes are still the problem's own."""
        return self.problem.official_shape


def shrink(problem: Problem, *, budget: Budget | None = None) -> ShrinkReport:
    """Scale ``problem`` down to ``budget``. A problem that fits already is returned as it is.

    A candidate counts only after a real run: finite output, not constant, no reduced extent below
    min(original, 8), every window with an interior. Sizes that were multiples of 16 or 8 stay
    so, odd ones stay odd. Raises ``ProblemError`` when the problem does not import.
    """
    search = _Search(replace(problem, shrunk=()), budget or Budget())
    load(search.problem)  # an import error is the user's to see, not a refused candidate
    if search.affords_original() and search.fits({}):
        return search.report({})
    # A network's own literals hold it up; a few trials show whether this one is such.
    most = NETWORK_TRIALS if len(literals(problem)) >= NETWORK_LITERALS else None
    candidates = islice(_candidates(search.problem), most)
    found = next((sizes for sizes in candidates if search.fits(sizes)), None)
    if found is not None:
        return search.report(_grown(search, found))
    if search.constant is None:
        network = _as_network(search)
        if network is not None:
            return network
    if search.constant is not None:
        return search.report(search.constant, "the output is constant at every size tried")
    return ShrinkReport(
        problem, evaluations=search.evaluations, reason=_why(search, search.problem)
    )


def _as_network(search: _Search) -> ShrinkReport | None:
    """Scale as :mod:`shrink_network` proposes: the first sizes that are cheap, else the cheapest.

    A network may cost more than one operation; past :data:`NETWORK_BUDGET` it is not used.
    """
    problem = search.problem
    wide = search.budget.times(*NETWORK_BUDGET)
    cheap = search.budget.times(*NETWORK_WANTED)
    network = _Search(
        problem, wide, network=True, evaluations=search.evaluations, _original=search.original
    )
    best: dict[str, int] | None = None
    left = NETWORK_PATIENCE
    for sizes in network_candidates(problem, literals(problem)):
        left -= best is not None
        if left < 0:
            break
        if not network.fits(sizes):
            continue
        found = network.measured[tuple(sizes.items())]
        if best is None or found.work < network.measured[tuple(best.items())].work:
            best = sizes
        if found.work <= cheap.work and found.elements <= cheap.elements:
            break
    search.evaluations = network.evaluations
    search.refusals += network.refusals
    if best is None:
        return None
    moved = sum(name.startswith("@") and old != new for name, old, new in network.scaled(best))
    notes = [f"{moved} literals inside its code are scaled"] if moved else []
    return network.report(best, *notes)


# ---- one candidate -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Search:
    problem: Problem
    budget: Budget
    network: bool = False
    evaluations: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    constant: dict[str, int] | None = None
    least_work: int | None = None
    measured: dict[tuple[tuple[str, int], ...], Measure] = field(default_factory=dict)
    tried: dict[tuple[tuple[str, int], ...], str] = field(default_factory=dict)
    _original: tuple[Extent, ...] = ()

    @property
    def original(self) -> tuple[Extent, ...]:
        """The extents at the original sizes, if they are known."""
        return self._original

    def scaled(self, sizes: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
        """Names, original and new values of the ``sizes`` that change."""
        original = {lever.name: lever.value for lever in self.problem.levers}
        original |= {literal.name: literal.value for literal in literals(self.problem)}
        return tuple((n, original[n], size) for n, size in sizes.items() if size != original[n])

    def affords_original(self) -> bool:
        """Whether the original sizes are within the budget, without computing any data."""
        try:
            found = measure(load(self.problem), fake=True)
        except Exception:
            # Data-dependent code does not run without data: the plain floors hold then, and the
            # element limit guards the real run.
            return True
        self._original = found.extents
        return not self._over_budget(found)

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Run at ``sizes``; False, with a reason counted, when they do not do."""
        key = tuple(sizes.items())
        if key not in self.tried:
            if self.evaluations >= self.budget.evaluations:
                return False
            self.evaluations += 1
            before = self.refusals.copy()
            self.tried[key] = "" if self._runs(sizes) else next(iter(self.refusals - before))
        return not self.tried[key]

    def _runs(self, sizes: Mapping[str, int]) -> bool:
        try:
            found = measure(load(self.problem, sizes), element_limit=16 * self.budget.elements)
        except TooLargeError:
            return self._refuse(TOO_LARGE)
        except ProblemError as error:
            return self._refuse(error.what)
        if self._over_budget(found):
            if found.work > self.budget.work:
                self.least_work = min(self.least_work or found.work, found.work)
            return self._refuse(TOO_LARGE)
        if not found.finite:
            return self._refuse("the output is not finite")
        short = self._too_short(found)
        if sizes and short:
            return self._refuse(short)
        self.measured[tuple(sizes.items())] = found
        if sizes and found.constant:
            self.constant = self.constant or dict(sizes)
            return self._refuse("the output is constant")
        return True

    def report(self, sizes: Mapping[str, int], *notes: str) -> ShrinkReport:
        found = self.measured[tuple(sizes.items())]
        scaled = self.scaled(sizes)
        shrunk = tuple((name, size) for name, _, size in scaled)
        batches = {lever.name for lever in self.problem.sizes if lever.is_batch}
        lost = [
            name
            for name, old, new in scaled
            if old % 8 == 0 and new % 8 and name not in batches and not name.startswith("@")
        ]
        if lost:
            notes = (*notes, f"no longer multiples of 8: {', '.join(lost)}")
        return ShrinkReport(
            replace(self.problem, shrunk=shrunk),
            scaled,
            found.work,
            found.elements,
            self.evaluations,
            "",
            notes,
        )

    def _over_budget(self, found: Measure) -> bool:
        return (
            found.work > self.budget.work
            or found.elements > self.budget.elements
            or found.operations > self.budget.operations
        )

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
        if self.network:
            found = replace(found, extents=_widest(found.extents))
        floors = [self._floor(extent) for extent in found.extents]
        if all(e.length >= floor for e, floor in zip(found.extents, floors, strict=True)):
            return ""
        original = _widest(self._original) if self.network else self._original
        same = [(e.operation, e.kind) for e in original] == [
            (e.operation, e.kind) for e in found.extents
        ]
        for index, extent in enumerate(found.extents):
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


# ---- the search --------------------------------------------------------------------------------


def aligned(original: int, target: int) -> int:
    """``target``, rounded to the alignment and the parity of ``original``, at most ``original``."""
    if target >= original or original <= SMALLEST:
        return original
    for unit in (16, 8):
        if original % unit == 0 and target >= unit:
            return target // unit * unit
    return target | 1 if original % 2 else max(2, target & ~1)


def _candidates(problem: Problem) -> Iterator[dict[str, int]]:
    """Sizes to start from, most wanted first."""
    levers = problem.sizes
    rest = [lever for lever in levers if not lever.is_batch]
    order = sorted({lever.value for lever in rest})
    batches = (SMALL_BATCH, NORM_BATCH)

    def sizes(batch: int, targets: Mapping[str, int]) -> dict[str, int]:
        return {
            lever.name: min(lever.value, batch)
            if lever.is_batch
            else aligned(lever.value, targets[lever.name])
            for lever in levers
        }

    # Extents that differ stay different: a kernel that mixes them up must not pass by symmetry.
    for base in (16, 8):
        ranked = {x.name: base << min(order.index(x.value), 2) for x in rest}
        yield from (sizes(batch, ranked) for batch in batches)
    for cap in (32, 16, 8, 64, 128):
        yield from (sizes(batch, {x.name: cap for x in rest}) for batch in batches)
    for cap, spatial in ((8, 32), (8, 16), (8, 64), (16, 8), (8, SMALLEST_SPATIAL)):
        targets = {x.name: spatial if x.is_spatial else cap for x in rest}
        yield from (sizes(batch, targets) for batch in batches)
    for divisor in (256, 128, 64, 32, 16, 8, 4, 2):
        targets = {x.name: max(SMALLEST, x.value // divisor) for x in rest}
        yield from (sizes(batch, targets) for batch in batches)
    for kept in rest:
        for divisor in (32, 16, 8, 4, 2, 1):
            for cap, spatial in ((16, 16), (8, 16), (8, 8)):
                targets = {x.name: spatial if x.is_spatial else cap for x in rest}
                targets[kept.name] = max(cap, kept.value // divisor)
                yield sizes(SMALL_BATCH, targets)
    for spatial in (24, 20, 12, 10):  # windows upon windows need what no aligned size offers
        yield {
            x.name: min(
                x.value, SMALL_BATCH if x.is_batch else spatial if x.is_spatial else SMALLEST
            )
            for x in levers
        }


def _grown(search: _Search, sizes: dict[str, int]) -> dict[str, int]:
    """Double all sizes together, then one at a time from the smallest, while they fit.

    A step that would make two sizes equal that differ in the original is left out. The batch comes
    last, up to :data:`NORM_BATCH`: more rows show less than longer ones.
    """
    levers = {lever.name: lever for lever in search.problem.sizes}
    rest = [name for name, lever in levers.items() if not lever.is_batch]
    longest = search.budget.longest

    def doubled(names: list[str], limit: int) -> dict[str, int] | None:
        bigger = {**sizes, **{name: _doubled(levers[name], sizes[name]) for name in names}}
        sound = bigger != sizes and all(
            bigger[name] <= max(limit, sizes[name])
            and not any(
                bigger[name] == bigger[other] and levers[name].value != levers[other].value
                for other in rest
            )
            for name in names
        )
        return bigger if sound and search.fits(bigger) else None

    start = sizes
    while (grown := doubled(rest, longest)) is not None:
        sizes = grown
    steps = [(rest, longest), ([name for name in levers if name not in rest], NORM_BATCH)]
    for names, limit in steps:
        still = set(names)
        while still:
            name = min(still, key=lambda name: (sizes[name], name))
            grown = doubled([name], limit)
            if grown is None:
                still.discard(name)
            else:
                sizes = grown
    # Where nothing grows alone, the batch may be tied to another size.
    if sizes is start:
        while (grown := doubled(list(levers), longest)) is not None:
            sizes = grown
    return sizes


def _doubled(lever: Lever, size: int) -> int:
    return aligned(lever.value, min(lever.value, 2 * size - size % 2))


def _why(search: _Search, problem: Problem) -> str:
    """The reason a problem could not be scaled, from the refusals."""
    if not search.problem.sizes and not literals(problem):
        return "it has no integer that is a size"
    if set(search.refusals) <= {TOO_LARGE}:
        least = f" (at least {search.least_work / 1e6:.1f}M)" if search.least_work else ""
        return f"it stays above the budget at every size tried{least}"
    del search.refusals[TOO_LARGE]
    reason, _ = search.refusals.most_common(1)[0]
    return reason
