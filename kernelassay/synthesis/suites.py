"""Suites of a campaign: what each budget detects, on all mutants and on those held out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kernelassay.analysis.plain import plain
from kernelassay.analysis.score import Share
from kernelassay.errors import UsageError
from kernelassay.joined import Cells
from kernelassay.matrix import load
from kernelassay.mutation import RULES
from kernelassay.oracle import Bools
from kernelassay.protocols import Protocol
from kernelassay.synthesis import choosers, cover
from kernelassay.synthesis.choosers import Known
from kernelassay.synthesis.folds import HELD_OUT, parts
from kernelassay.synthesis.generate.rungs import TOLD
from kernelassay.synthesis.pool import Barred, Mutant, Pool, own_rule, pool, require_mutants
from kernelassay.synthesis.traits import rung

RECIPE = "recipe"
SCORED = ("greedy", "exact", "smoothed", RECIPE)
"""What curves are drawn of: choosers for each problem, and one recipe for all."""
WITHOUT_PRIOR = ("greedy", "exact")
"""Choosers that know nothing of a problem of which no mutant is known."""
LADDER = (1, 2, 3, 5, 8, 13, 21, 34, 55)

Choice = tuple[tuple[int, ...], ...]
"""Of each pool the columns chosen, in their order."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What a chooser's inputs detect of the witnessed mutants, by budget.

    ``held_out`` is the way in which the mutants that it is scored on were kept from it; empty: it
    knew them all. ``reached`` has the same counts, of the mutants that any fit input detects.
    ``inputs`` is how many it took of a problem, in the mean: some stop below the budget.
    """

    chooser: str
    held_out: str
    parts: int
    detected: Mapping[int, Share]
    reached: Mapping[int, Share]
    inputs: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Pick:
    """One greedy step: the input, its elements, and what is detected with it."""

    input: str
    elements: int
    detected: int


@dataclass(frozen=True, slots=True)
class Optimum:
    """The most that ``budget`` inputs can detect, and the cheapest inputs that do."""

    budget: int
    detected: int
    elements: int
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProblemCover:
    """One problem: greedy steps until all that any fit input detects is caught, and optima beside.

    ``optima`` are for each budget up to the number of greedy steps, ``cheapest`` the inputs of
    least cost that catch as much. ``kept_out`` has the inputs that may not be chosen, with the
    reason; ``open`` the witnessed mutants that are left out, ``correct`` the number of correct
    kernels that no input to choose from rejects.
    """

    problem: str
    witnessed: int
    reachable: int
    official: Share
    inputs: int
    greedy: tuple[Pick, ...]
    optima: tuple[Optimum, ...]
    cheapest: Optimum
    kept_out: Mapping[str, str]
    open: tuple[str, ...]
    correct: int


@dataclass(frozen=True, slots=True)
class Alone:
    """A mutant that one input of a suite alone detects: its rule, and the bug that stands for."""

    mutant: str
    rule: str
    bug: str


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a chosen input is for: what it detects, and the mutants that no other beside it does."""

    input: str
    elements: int
    detects: int
    alone: tuple[Alone, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """The inputs chosen for a problem, in the order chosen, by what is known of all mutants."""

    problem: str
    inputs: tuple[Purpose, ...]
    detected: Share
    elements: int


@dataclass(frozen=True, slots=True)
class Suites:
    """The suites of a session. ``tolerance`` is the one that witnesses are counted at.

    ``rule`` says by which acceptance rule a mutant is detected. ``expressible`` names the format
    that inputs were to be expressible in, if any. ``recipe`` are the traits of one recipe for all
    problems, as many as the longest curve asks for. ``chooser`` and ``budget`` are those of
    ``suites``. ``told`` counts the inputs to choose from that a generator made which was told of
    mutants: to these no mutant is held out. ``undivided`` are the ways to hold out that were asked
    for and have no curve, since all mutants fall in one part.
    """

    session: str
    tolerance: float
    protocol: str
    rule: str
    expressible: str
    official_shapes: bool
    unfinished: tuple[str, ...]
    refused: tuple[str, ...]
    witnessed: int
    reachable: Share
    official: Share
    official_reached: Share
    curves: tuple[Curve, ...]
    recipe: tuple[str, ...]
    problems: tuple[ProblemCover, ...]
    chooser: str
    budget: int
    suites: tuple[Suite, ...]
    told: int
    undivided: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data; shares carry their rate."""
        return plain(self)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of suites: ``held_out`` are keys of ``folds.HELD_OUT``."""

    tolerance: float = 1e-2
    protocol: Protocol | None = None
    held_out: tuple[str, ...] = ("id",)
    chooser: str = "smoothed"
    budget: int = 2
    barred: Barred = lambda plan, record: ""
    expressible: str = ""


def pools_of(session: Cells, asked: Asked, *, partial: bool = False) -> tuple[Pool, ...]:
    """The pools of a session, or of several joined; with ``partial`` of the finished problems.

    Raises as :func:`matrix.load` and :func:`pool`, and :class:`NothingToTestError` if there is
    nothing to choose.
    """
    protocol = asked.protocol or own_rule(asked.tolerance)
    found = tuple(
        pool(matrix, protocol, asked.tolerance, asked.barred)
        for matrix in load(session, partial=partial)
    )
    require_mutants(found)
    return found


def analyse(session: Cells, pools: Sequence[Pool], asked: Asked) -> Suites:
    """The suites of a session, or of several joined, that :func:`pools_of` gave the pools of.

    Raises :class:`UsageError` for a budget of less than one input.
    """
    if asked.budget < 1:
        raise UsageError("a suite holds one input at least", hint="give a budget of 1 or more")
    known = choosers.everything(pools)
    covers = tuple(map(_cover, pools))
    ladder = _ladder(max(len(one.greedy) for one in covers))
    protocol = asked.protocol or own_rule(asked.tolerance)
    witnessed = sum(len(one.mutants) for one in pools)
    reachable = sum(one.reachable for one in covers)
    official = sum(int(one.official.sum()) for one in pools)
    both = sum(int((one.official & one.detects.any(axis=1)).sum()) for one in pools)
    return Suites(
        session=session.name,
        tolerance=asked.tolerance,
        protocol=protocol.name,
        rule="; ".join(sorted({protocol.rule_in(one.plan).in_words() for one in pools})),
        expressible=asked.expressible,
        official_shapes=all(one.plan["problem"]["official_shape"] for one in pools),
        unfinished=tuple(session.unfinished()),
        refused=tuple(p["problem"]["id"] for p in session.finished_plans() if p["refused"]),
        witnessed=witnessed,
        reachable=Share(reachable, witnessed),
        official=Share(official, witnessed),
        official_reached=Share(both, reachable),
        curves=tuple(_curves(pools, ladder, asked.held_out)),
        recipe=choosers.recipe(known, ladder[-1]),
        problems=covers,
        chooser=asked.chooser,
        budget=asked.budget,
        suites=tuple(
            suite_of(one, choosers.CHOOSERS[asked.chooser](known, at, asked.budget))
            for at, one in enumerate(pools)
        ),
        told=sum(rung(record) in TOLD for one in pools for record in one.records),
        undivided=tuple(way for way in asked.held_out if not _divided(pools, way)),
    )


def suite_of(one: Pool, chosen: Sequence[int]) -> Suite:
    """A choice of columns of a pool as a suite: what each of its inputs is for."""
    bugs = {rule.id: rule.bug for rule in RULES}
    hits = one.detects[:, list(chosen)]
    only = hits & (hits.sum(axis=1, keepdims=True) == 1)

    def purpose(place: int, column: int) -> Purpose:
        alone = (one.mutants[row] for row in np.flatnonzero(only[:, place]))
        return Purpose(
            input=one.inputs[column],
            elements=int(one.costs[column]),
            detects=int(hits[:, place].sum()),
            alone=tuple(Alone(m.id, m.rule, bugs.get(m.rule, "")) for m in alone),
        )

    return Suite(
        problem=one.problem,
        inputs=tuple(purpose(place, column) for place, column in enumerate(chosen)),
        detected=Share(cover.covered(one.detects, chosen), len(one.mutants)),
        elements=int(one.costs[list(chosen)].sum()),
    )


def _cover(one: Pool) -> ProblemCover:
    steps = cover.greedy(one.detects, len(one.inputs))
    return ProblemCover(
        problem=one.problem,
        witnessed=len(one.mutants),
        reachable=int(one.detects.any(axis=1).sum()),
        official=Share(int(one.official.sum()), len(one.mutants)),
        inputs=len(one.inputs),
        greedy=tuple(
            Pick(one.inputs[c], int(one.costs[c]), cover.covered(one.detects, steps[: k + 1]))
            for k, c in enumerate(steps)
        ),
        optima=tuple(
            _optimum(one, cover.exact(one.detects, one.costs, budget), budget)
            for budget in range(1, len(steps) + 1)
        ),
        cheapest=_optimum(one, least := cover.cheapest(one.detects, one.costs), len(least)),
        kept_out=one.kept_out,
        open=one.open,
        correct=one.correct,
    )


def _optimum(one: Pool, columns: Sequence[int], budget: int) -> Optimum:
    return Optimum(
        budget,
        cover.covered(one.detects, columns),
        int(one.costs[list(columns)].sum()),
        tuple(one.inputs[column] for column in columns),
    )


def _ladder(most: int) -> tuple[int, ...]:
    """1, 2, 3, 5, 8, ... up to the number that catches all, and that; 5 at least."""
    most = max(most, LADDER[3])
    return tuple(sorted({*(budget for budget in LADDER if budget < most), most}))


# ---- curves ------------------------------------------------------------------------------------


def _curves(
    pools: Sequence[Pool], ladder: Sequence[int], held_out: Iterable[str]
) -> Iterator[Curve]:
    for chooser in SCORED:
        yield curve(pools, chooser, "", ladder)
    for way in held_out:
        if _divided(pools, way):
            for chooser in SCORED:
                if way != "problem" or chooser not in WITHOUT_PRIOR:
                    yield curve(pools, chooser, way, ladder)


def curve(
    pools: Sequence[Pool], chooser: str, held_out: str, ladder: Sequence[int], salt: str = ""
) -> Curve:
    """Score a chooser on all mutants, each with what was chosen without knowing its part.

    ``salt`` is that of the halves.
    """
    folds = parts(_mutants(pools), held_out, salt) if held_out else ("",)
    counts = dict.fromkeys(ladder, 0)
    taken = dict.fromkeys(ladder, 0)
    suites = 0
    for part in folds:
        scored = [_in_part(one, held_out, part, salt) for one in pools]
        masks = tuple(~mask if held_out else mask for mask in scored)
        choose = _chooser(Known(tuple(pools), masks), chooser, ladder)
        for at, one in enumerate(pools):
            if not scored[at].any():
                continue
            suites += 1
            for budget in ladder:
                columns = choose(at, budget)
                counts[budget] += cover.covered(one.detects[scored[at]], columns)
                taken[budget] += len(columns)
    total = sum(len(one.mutants) for one in pools)
    reachable = sum(int(one.detects.any(axis=1).sum()) for one in pools)
    return Curve(
        chooser=chooser,
        held_out=held_out,
        parts=len(folds),
        detected={budget: Share(count, total) for budget, count in counts.items()},
        reached={budget: Share(count, reachable) for budget, count in counts.items()},
        inputs={budget: count / suites for budget, count in taken.items()},
    )


def _chooser(
    known: Known, chooser: str, ladder: Sequence[int]
) -> Callable[[int, int], tuple[int, ...]]:
    """The choice for a pool and a budget; greedy ones are made once and cut."""
    if chooser == RECIPE:
        traits = choosers.recipe(known, ladder[-1])
        return lambda at, budget: choosers.resolved(known.pools[at], traits[:budget])
    if chooser == "smoothed":
        return cache(lambda at, budget: choosers.smoothed(known, at, budget))
    if chooser == "exact":
        enough = cache(lambda at: len(cover.greedy(known.rows[at], ladder[-1])))
        best = cache(lambda at, budget: choosers.exact(known, at, budget))
        return lambda at, budget: best(at, min(budget, enough(at)))
    longest: dict[int, tuple[int, ...]] = {}

    def cut(at: int, budget: int) -> tuple[int, ...]:
        if at not in longest:
            longest[at] = choosers.CHOOSERS[chooser](known, at, ladder[-1])
        return longest[at][:budget]

    return cut


def _in_part(one: Pool, held_out: str, part: str, salt: str) -> Bools:
    """The mutants of a pool in a part; all of them where nothing is held out. [mutants]."""
    key = HELD_OUT[held_out] if held_out else lambda mutant, salt: part
    return np.array([key(mutant, salt) == part for mutant in one.mutants], dtype=bool)


def _divided(pools: Iterable[Pool], way: str) -> bool:
    return len(parts(_mutants(pools), way)) > 1


def _mutants(pools: Iterable[Pool]) -> Iterator[Mutant]:
    return (mutant for one in pools for mutant in one.mutants)
