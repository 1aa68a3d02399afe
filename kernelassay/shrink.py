"""Scale a problem's module-level sizes down until one forward pass fits a budget.

The search starts small, keeps the first sizes that run and still test the operation, and grows
them back toward the budget. To test the operation still, a size may bring no reduced or normalised
extent, group or window below its floor, and no output much flatter than the original's. Where
module-level integers alone do not do, it also scales the sizes written inside classes and functions
and cuts repeated layers (:mod:`kernelassay.shrink_network`), at a larger budget. Everything here
EXECUTES problem code: call it inside a worker process only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from kernelassay.errors import ProblemError
from kernelassay.execute.sandbox import run_limited
from kernelassay.measure import FLOORS, Extent, Measure, TooLargeError, measure
from kernelassay.problem import Lever, Problem, literals, load
from kernelassay.shrink_network import network_candidates
from kernelassay.shrink_sizes import NORM_BATCH, SMALL_BATCH, aligned, candidates, doubled_size

SECONDS = 300.0
MEMORY_BYTES = 8 << 30
_BYTES_PER_ELEMENT = 4

SPREAD_SHARE = 1 / 32
"""How much of the original output's spread must stay. Honest shrinking may lose some of it: the
spread of a sum over n terms of both signs grows with the root of n."""

OVERDRAFT = 4
"""How many times the budget may be spent where nothing within it tests the operation."""

# A problem with this many literals may be a network; so many trials show whether it is not.
NETWORK_LITERALS, NETWORK_TRIALS = 4, 4
# Work and elements of whole networks, as multiples of the budget's: at most, and wanted.
NETWORK_BUDGET = (20, 16)
NETWORK_WANTED = (2, 8)
NETWORK_PATIENCE = 16

REFERENCE = (2_000_000_000, 1 << 24)
"""The work and the elements up to which sizes are run to learn the original's spread."""


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


def shrink(problem: Problem, *, budget: Budget | None = None) -> ShrinkReport:
    """Scale ``problem`` down to ``budget``. A problem that fits already is returned as it is.

    A candidate counts only after a real run: finite output, not constant unless the original's is,
    at least :data:`SPREAD_SHARE` of the original's spread, no reduced or normalised extent below
    min(original, 8), no group below min(original, 2) channels, every window with an interior. Sizes
    that were multiples of 16 or 8 stay so, odd ones stay odd. Raises ``ProblemError`` when the
    problem does not import.
    """
    search = _Search(replace(problem, shrunk=()), budget or Budget())
    load(search.problem)  # an import error is the user's to see, not a refused candidate
    if search.affords_original():
        if search.fits({}):
            return search.report({})
        if set(search.refusals) != {"too large"}:
            # It is small enough and does not work: other sizes would be another problem.
            return ShrinkReport(problem, evaluations=1, reason=_why(search))
    search.original = _original_spread(search)
    network_like = len(literals(problem)) >= NETWORK_LITERALS
    steps = (
        (_plainly, _as_network, _overdrawn) if network_like else (_plainly, _overdrawn, _as_network)
    )
    for step in steps:
        report = step(search)
        if report is not None:
            return report
    if search.flat is not None:
        sizes, why = search.flat
        return search.report(sizes, f"{why} at every size tried")
    return ShrinkReport(problem, evaluations=search.evaluations, reason=_why(search))


def _plainly(search: _Search) -> ShrinkReport | None:
    """Scale the module-level sizes alone, within the budget."""
    most = NETWORK_TRIALS if len(literals(search.problem)) >= NETWORK_LITERALS else None
    found = _first(search, 1, most)
    return None if found is None else search.report(_grown(search, found))


def _overdrawn(search: _Search) -> ShrinkReport | None:
    """The same at :data:`OVERDRAFT` times the budget."""
    found = _first(search, OVERDRAFT, None)
    return (
        None if found is None else search.report(found, f"over the budget of {search.budget.work}")
    )


def _first(search: _Search, allowance: int, most: int | None) -> dict[str, int] | None:
    search.allowance, search.levers = allowance, search.problem.sizes
    search.limit = search.evaluations + search.budget.evaluations
    tried = islice(candidates(search.levers), most) if search.levers else ()
    return next((sizes for sizes in tried if search.fits(sizes)), None)


def _as_network(search: _Search) -> ShrinkReport | None:
    """Scale literals too, as :mod:`shrink_network` proposes.

    A single operation stays within the budget if it can. A network may cost more: the first sizes
    that are cheap, else the cheapest, at most :data:`NETWORK_BUDGET` times the budget.
    """
    if search.flat is not None:
        return None  # its sizes do scale; they leave it a constant
    wide = (search.budget.times(*NETWORK_BUDGET), search.budget.times(*NETWORK_WANTED))
    if len(literals(search.problem)) >= NETWORK_LITERALS:
        return _network_within(search, *wide)
    within = _network_within(search, search.budget, search.budget)
    return within or _network_within(search, *wide)


def _network_within(search: _Search, most: Budget, wanted: Budget) -> ShrinkReport | None:
    problem = search.problem
    network = _Search(
        problem,
        most,
        network=True,
        evaluations=search.evaluations,
        limit=search.evaluations + search.budget.evaluations,
        extents=search.extents,
        original=search.original,
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
        if found.work <= wanted.work and found.elements <= wanted.elements:
            break
    search.evaluations = network.evaluations
    search.refusals += network.refusals
    search.flat = search.flat or network.flat
    if best is None:
        return None
    moved = sum(name.startswith("@") for name, _, _ in _scaled(problem, best))
    notes = [f"{moved} literals inside its code are scaled"] if moved else []
    return network.report(best, *notes)


def shrink_limited(problem: Problem) -> ShrinkReport:
    """:func:`shrink` in a child with limits; what the problem's code does wrong is the reason."""
    try:
        return run_limited(
            shrink, (problem,), seconds=SECONDS, memory_bytes=MEMORY_BYTES, where=problem.id
        )
    except ProblemError as error:
        return ShrinkReport(problem, reason=str(error))


# ---- one candidate -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Search:
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
        except ProblemError as error:
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
        found = self.measured[tuple(sizes.items())]
        scaled = _scaled(self.problem, sizes)
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


def _scaled(problem: Problem, sizes: Mapping[str, int]) -> tuple[Scaled, ...]:
    original = {lever.name: lever.value for lever in problem.levers}
    original |= {literal.name: literal.value for literal in literals(problem)}
    return tuple(
        (name, original[name], size) for name, size in sizes.items() if size != original[name]
    )


# ---- the original's spread ---------------------------------------------------------------------


def _original_spread(search: _Search) -> Spread | None:
    """The spread at the largest sizes that are cheap enough to run once; None if none run."""
    work, elements = REFERENCE
    for sizes in _reference_sizes(search.problem):
        try:
            loaded = load(search.problem, sizes)
            cost = search.original_work if not sizes else measure(loaded, fake=True)
            if cost is None or cost.work > work or cost.elements > elements:
                continue
            found = measure(loaded, element_limit=elements)
        except Exception:  # these sizes do not run, or not without data
            continue
        if found.finite:
            return Spread(found.spread, found.constant, _scaled(search.problem, sizes))
    return None


def _reference_sizes(problem: Problem) -> Iterator[dict[str, int]]:
    yield {}
    for divisor in (1, 2, 4, 8, 16, 32):
        yield {
            lever.name: min(lever.value, SMALL_BATCH if divisor == 1 else NORM_BATCH)
            if lever.is_batch
            else aligned(lever.value, max(NORM_BATCH, lever.value // divisor))
            for lever in problem.sizes
        }


# ---- growing ---------------------------------------------------------------------------------


def _grown(search: _Search, sizes: dict[str, int]) -> dict[str, int]:
    """Double all sizes together, then one at a time from the smallest, while they fit.

    A step that would make two sizes equal that differ in the original is left out. The batch comes
    last, up to :data:`NORM_BATCH`: more rows show less than longer ones.
    """
    levers = {lever.name: lever for lever in search.levers}
    rest = [name for name, lever in levers.items() if not lever.is_batch]
    longest = search.budget.longest

    def doubled(names: list[str], limit: int) -> dict[str, int] | None:
        bigger = {**sizes, **{name: doubled_size(levers[name], sizes[name]) for name in names}}
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


def _why(search: _Search) -> str:
    """The reason a problem could not be scaled, from the refusals."""
    if not search.refusals:
        return "it has no integer that is a size"
    if set(search.refusals) <= {"too large"}:
        least = f" (at least {search.least_work / 1e6:.1f}M)" if search.least_work else ""
        return f"it stays above the budget at every size tried{least}"
    del search.refusals["too large"]
    reason, _ = search.refusals.most_common(1)[0]
    return reason
