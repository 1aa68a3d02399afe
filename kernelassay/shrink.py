"""Scale a problem's module-level sizes down until one forward pass fits a budget.

The search starts small, keeps the first sizes that run and still test the operation, and grows
them back toward the budget. To test the operation still, a size may bring no reduced or normalised
extent, group or window below its floor, and no output much flatter than the original's. Where
module-level integers alone do not do, it also scales the sizes written inside classes and functions
and cuts repeated layers (:mod:`kernelassay.shrink_network`), at a larger budget. Everything here
EXECUTES problem code: call it inside a worker process only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from kernelassay.errors import ProblemError, UnsupportedError
from kernelassay.execute.sandbox import run_limited
from kernelassay.measure import measure
from kernelassay.problem import Problem, literals, load
from kernelassay.shrink_network import network_candidates
from kernelassay.shrink_search import Budget, Search, ShrinkReport, Spread, scaled_by
from kernelassay.shrink_sizes import NORM_BATCH, SMALL_BATCH, aligned, candidates, doubled_size

SECONDS = 300.0
MEMORY_BYTES = 8 << 30
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


def shrink(problem: Problem, *, budget: Budget | None = None) -> ShrinkReport:
    """Scale ``problem`` down to ``budget``. A problem that fits already is returned as it is.

    A candidate counts only after a real run: finite output, not constant unless the original's is,
    at least :data:`SPREAD_SHARE` of the original's spread, no reduced or normalised extent below
    min(original, 8), no group below min(original, 2) channels, every window with an interior. Sizes
    that were multiples of 16 or 8 stay so, odd ones stay odd. Raises ``ProblemError`` when the
    problem does not import.
    """
    search = Search(replace(problem, shrunk=()), budget or Budget())
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


def _plainly(search: Search) -> ShrinkReport | None:
    """Scale the module-level sizes alone, within the budget."""
    most = NETWORK_TRIALS if len(literals(search.problem)) >= NETWORK_LITERALS else None
    found = _first(search, 1, most)
    return None if found is None else search.report(_grown(search, found))


def _overdrawn(search: Search) -> ShrinkReport | None:
    """The same at :data:`OVERDRAFT` times the budget."""
    found = _first(search, OVERDRAFT, None)
    return (
        None if found is None else search.report(found, f"over the budget of {search.budget.work}")
    )


def _first(search: Search, allowance: int, most: int | None) -> dict[str, int] | None:
    search.allowance, search.levers = allowance, search.problem.sizes
    search.limit = search.evaluations + search.budget.evaluations
    tried = islice(candidates(search.levers), most) if search.levers else ()
    return next((sizes for sizes in tried if search.fits(sizes)), None)


def _as_network(search: Search) -> ShrinkReport | None:
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


def _network_within(search: Search, most: Budget, wanted: Budget) -> ShrinkReport | None:
    problem = search.problem
    network = Search(
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
    moved = sum(name.startswith("@") for name, _, _ in scaled_by(problem, best))
    notes = [f"{moved} literals inside its code are scaled"] if moved else []
    return network.report(best, *notes)


def shrink_limited(problem: Problem) -> ShrinkReport:
    """:func:`shrink` in a child with limits; what the problem's code does wrong is the reason."""
    try:
        return run_limited(
            shrink, (problem,), seconds=SECONDS, memory_bytes=MEMORY_BYTES, where=problem.id
        )
    except (ProblemError, UnsupportedError) as error:
        return ShrinkReport(problem, reason=str(error))


# ---- the original's spread ---------------------------------------------------------------------


def _original_spread(search: Search) -> Spread | None:
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
            return Spread(found.spread, found.constant, scaled_by(search.problem, sizes))
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


def _grown(search: Search, sizes: dict[str, int]) -> dict[str, int]:
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


def _why(search: Search) -> str:
    """The reason a problem could not be scaled, from the refusals."""
    if not search.refusals:
        return "it has no integer that is a size"
    if set(search.refusals) <= {"too large"}:
        least = f" (at least {search.least_work / 1e6:.1f}M)" if search.least_work else ""
        return f"it stays above the budget at every size tried{least}"
    del search.refusals["too large"]
    reason, _ = search.refusals.most_common(1)[0]
    return reason
