"""Ways to choose the inputs of one problem, given what is known of mutants.

A chooser sees the rows of the mutants that are known, of its own problem and of others, and no
more. Scored on mutants that it did not see, one that only covers what it saw may serve badly: it
stops when all of that is covered, and prefers an input that catches one more known mutant by chance
to one that catches such mutants as a rule. :func:`smoothed` asks what an unknown mutant would do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from kernelassay.oracle import Bools
from kernelassay.synthesis import cover
from kernelassay.synthesis.pool import Pool
from kernelassay.synthesis.traits import trait

DOUBT = 0.1
"""How far an unknown mutant is not like a known one: the share of chance in :func:`smoothed`."""
PRIOR = 10.0
"""As many known mutants of the problem itself count as much as all those of other problems."""


@dataclass(frozen=True, eq=False)
class Known:
    """The pools of a campaign, and of each the mutants that a chooser may look at. [mutants]."""

    pools: tuple[Pool, ...]
    masks: tuple[Bools, ...]

    @cached_property
    def rows(self) -> tuple[Bools, ...]:
        """What the known mutants of each pool show. [known mutants, inputs]."""
        return tuple(p.detects[m] for p, m in zip(self.pools, self.masks, strict=True))

    @cached_property
    def kinds(self) -> tuple[tuple[Bools, NDArray[np.float64]], ...]:
        """The distinct ones of :attr:`rows`, sorted, and how many mutants are of each."""
        return tuple(map(cover.kinds, self.rows))

    @cached_property
    def by_trait(self) -> tuple[Mapping[str, NDArray[np.float64]], ...]:
        """Of each pool and trait: the share of such inputs that detects each kind of mutant."""
        found = []
        for columns, (rows, _) in zip(map(columns_by_trait, self.pools), self.kinds, strict=True):
            found.append({name: rows[:, some].mean(axis=1) for name, some in columns.items()})
        return tuple(found)

    def elsewhere(self, at: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The known mutants of all other problems, as if run on the inputs of pool ``at``.

        An input detects one as often as inputs of its trait do there; where there are none, as
        often as inputs do at all. Chances [kinds, inputs], and how many mutants are of each kind.
        """
        traits = [trait(record) for record in self.pools[at].records]
        found = [np.zeros((0, len(traits)))]
        counts = [np.zeros(0)]
        for other, (rows, count) in enumerate(self.kinds):
            if other != at and rows.size and traits:
                mean = rows.mean(axis=1)
                shares = self.by_trait[other]
                found.append(np.stack([shares.get(name, mean) for name in traits], axis=1))
                counts.append(count)
        return np.concatenate(found), np.concatenate(counts)


def everything(pools: Sequence[Pool]) -> Known:
    """All mutants of all pools."""
    return Known(tuple(pools), tuple(np.ones(len(p.mutants), dtype=bool) for p in pools))


def columns_by_trait(pool: Pool) -> dict[str, list[int]]:
    """The inputs of a pool by their trait, the preferred first."""
    found: dict[str, list[int]] = {}
    for column, record in enumerate(pool.records):
        found.setdefault(trait(record), []).append(column)
    return found


Chooser = Callable[[Known, int, int], tuple[int, ...]]
"""Of what is known, the number of a pool and a budget: the columns chosen, in their order."""


def greedy(known: Known, at: int, budget: int) -> tuple[int, ...]:
    """Greedy cover of the known mutants of the problem."""
    return cover.greedy(known.rows[at], budget)


def exact(known: Known, at: int, budget: int) -> tuple[int, ...]:
    """The best cover of the known mutants of the problem, and of those the cheapest."""
    return cover.exact(known.rows[at], known.pools[at].costs, budget)


def cheapest(known: Known, at: int, budget: int) -> tuple[int, ...]:
    """The cheapest inputs that detect all that any does, whatever the budget."""
    return cover.cheapest(known.rows[at], known.pools[at].costs)


def smoothed(known: Known, at: int, budget: int) -> tuple[int, ...]:
    """Greedy cover of unknown mutants, in expectation.

    An unknown mutant is like a known one of the problem, or (:data:`PRIOR`) of another one. Where
    input i detects the known one, it detects the unknown one with the chance 1 - d + d r(i), else
    with d r(i): d is :data:`DOUBT` and r(i) the share of mutants that i detects. A second input
    that detects what one does already thus has some worth, and the whole budget is used.
    """
    chances, weights = _unknown(known, at, DOUBT, PRIOR)
    return cover.exchanged(chances, weights, cover.greedy_expected(chances, weights, budget))


@lru_cache(maxsize=1)
def _unknown(
    known: Known, at: int, doubt: float, prior: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The kinds of unknown mutants of a problem: chances [kinds, inputs], and weights [kinds]."""
    own, counts = known.kinds[at]
    others, many = known.elsewhere(at)
    weight = prior if len(others) else 0.0
    shares = many / many.sum() if len(others) else many
    total = counts.sum() + weight
    if total == 0:
        return np.zeros((0, own.shape[1])), np.zeros(0)
    rates = (counts @ own + weight * (shares @ others)) / total
    chances = np.concatenate([own, others]) * (1.0 - doubt) + doubt * rates
    return chances, np.concatenate([counts, weight * shares])


CHOOSERS: Mapping[str, Chooser] = {
    "greedy": greedy,
    "exact": exact,
    "smoothed": smoothed,
    "cheapest": cheapest,
}


def recipe(known: Known, budget: int) -> tuple[str, ...]:
    """One choice of traits for all problems: greedy cover of all known mutants together.

    On a problem a trait stands for its preferred input there, if there is one.
    """
    columns = [columns_by_trait(pool) for pool in known.pools]
    traits = sorted({name for some in columns for name in some})
    blocks = []
    for some, rows in zip(columns, known.rows, strict=True):
        block = np.zeros((len(rows), len(traits)), dtype=bool)
        for number, name in enumerate(traits):
            if name in some:
                block[:, number] = rows[:, some[name][0]]
        blocks.append(block)
    chosen = cover.greedy(np.concatenate(blocks), budget)
    return tuple(traits[number] for number in chosen)


def resolved(pool: Pool, traits: Sequence[str]) -> tuple[int, ...]:
    """The inputs of a pool that a recipe stands for; those it lacks are left out."""
    columns = columns_by_trait(pool)
    return tuple(columns[name][0] for name in traits if name in columns)
