"""Maximum coverage: which columns of a matrix hit the most rows, greedily and exactly.

``hits`` has shape [rows, columns]. Columns are numbered by preference: of equals the first is
taken. Rows that no column hits count for nothing. Nothing here depends on the order of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernelassay.errors import KernelassayError
from kernelassay.oracle import Bools

LEAST_GAIN = 1e-9
"""A column that adds less adds nothing; gains that differ by less are equal."""


def covered(hits: Bools, columns: Sequence[int]) -> int:
    """How many rows some of the columns hit."""
    return int(hits[:, list(columns)].any(axis=1).sum())


def greedy(hits: Bools, budget: int) -> tuple[int, ...]:
    """At most ``budget`` columns, in turn the one that hits most of the rows left.

    It ends early when no column hits another row. The first columns of a larger budget are those
    of a smaller one. At least 1 - 1/e of the optimum (Nemhauser, Wolsey and Fisher, 1978).
    """
    return greedy_expected(hits.astype(float), np.ones(len(hits)), budget)


def in_rounds(hits: Bools, budget: int) -> tuple[int, ...]:
    """At most ``budget`` columns: :func:`greedy`, and once it ends anew with the columns left.

    So rows are hit again and again, as well as so many columns can, by different ones: rows that
    are not known may be missed by the first of them. Columns that hit no row are never taken.
    """
    chosen: list[int] = []
    left = np.arange(hits.shape[1])
    while len(chosen) < budget:
        more = left[list(greedy(hits[:, left], budget - len(chosen)))]
        if not more.size:
            break
        chosen += [int(column) for column in more]
        left = left[~np.isin(left, more)]
    return tuple(chosen)


def greedy_expected(
    chances: NDArray[np.float64], weights: NDArray[np.float64], budget: int
) -> tuple[int, ...]:
    """:func:`greedy` where a column hits a row, of some weight, with a chance of its own.

    ``chances`` has shape [rows, columns]; columns hit independently, so that the expected weight
    hit, sum of w (1 - product of (1 - p)), has the diminishing returns that greed needs.
    """
    left = np.asarray(weights, dtype=float).copy()
    chosen: list[int] = []
    while len(chosen) < budget and chances.shape[1]:
        gains = left @ chances
        gains[chosen] = 0.0
        best = float(gains.max())
        if best <= LEAST_GAIN:
            break
        column = int(np.flatnonzero(gains >= best - LEAST_GAIN)[0])
        chosen.append(column)
        left *= 1.0 - chances[:, column]
    return tuple(chosen)


def exchanged(
    chances: NDArray[np.float64], weights: NDArray[np.float64], chosen: Sequence[int]
) -> tuple[int, ...]:
    """``chosen`` columns, exchanged one by one for others as long as more weight is hit by that.

    In the order in which greed would take those that are left. Expects chances and weights as
    :func:`greedy_expected`.
    """
    columns = list(chosen)
    gained = True
    while gained:
        gained = False
        for place in range(len(columns)):
            others = [*columns[:place], *columns[place + 1 :]]
            left = weights * (1.0 - chances[:, others]).prod(axis=1)
            gains = left @ chances
            gains[others] = 0.0
            best = float(gains.max())
            if best > gains[columns[place]] + LEAST_GAIN:
                columns[place] = int(np.flatnonzero(gains >= best - LEAST_GAIN)[0])
                gained = True
    order = sorted(columns)
    return tuple(order[at] for at in greedy_expected(chances[:, order], weights, len(order)))


def exact(hits: Bools, costs: NDArray[np.int64], budget: int) -> tuple[int, ...]:
    """At most ``budget`` columns that hit the most rows, and of those sets one of least cost.

    Two integer programs (HiGHS): the rows hit, then the cost at as many. Ascending. Raises
    :class:`KernelassayError` if the solver does not prove an optimum.
    """
    rows, counts = _live_kinds(hits)
    if not rows.size or budget < 1:
        return ()
    best = covered(hits, greedy(hits, budget))
    if best < counts.sum():
        best = covered(hits, _solve(rows, counts, budget, objective=None, floor=None))
    return _solve(rows, counts, budget, objective=costs.astype(float), floor=best)


def cheapest(hits: Bools, costs: NDArray[np.int64]) -> tuple[int, ...]:
    """The columns of least total cost that hit every row that any column hits. Ascending."""
    rows, counts = _live_kinds(hits)
    if not rows.size:
        return ()
    everything = int(counts.sum())
    return _solve(rows, counts, hits.shape[1], objective=costs.astype(float), floor=everything)


def kinds(hits: Bools) -> tuple[Bools, NDArray[np.float64]]:
    """The distinct rows, sorted, and how many there are of each."""
    if not hits.size:
        return np.zeros((0, hits.shape[1]), dtype=bool), np.zeros(0)
    found, counts = np.unique(hits, axis=0, return_counts=True)
    return np.asarray(found), np.asarray(counts, dtype=float)


def _live_kinds(hits: Bools) -> tuple[Bools, NDArray[np.float64]]:
    """:func:`kinds` of the rows that some column hits."""
    return kinds(hits[hits.any(axis=1)])


def _solve(
    rows: Bools,
    counts: NDArray[np.float64],
    budget: int,
    *,
    objective: NDArray[np.float64] | None,
    floor: int | None,
) -> tuple[int, ...]:
    """The columns of an optimum: most rows, or least ``objective`` with at least ``floor`` rows.

    A variable for each column (taken or not) and one for each kind of row (hit, at most as often as
    its columns are taken).
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, hstack, identity

    every = np.zeros(rows.shape[1]) if objective is None else objective
    left = _undominated(rows, every)
    hits, price = rows[:, left], every[left]
    many, columns = hits.shape
    none = np.zeros(columns)
    hit = hstack([csr_array(hits.astype(float)), -identity(many)], format="csr")
    limits = [
        LinearConstraint(hit, lb=0.0),
        LinearConstraint(np.concatenate([np.ones(columns), np.zeros(many)]), ub=budget),
    ]
    if floor is not None:
        limits.append(LinearConstraint(np.concatenate([none, counts]), lb=floor))
    goal = -counts if objective is None else np.zeros(many)
    found = milp(
        np.concatenate([price, goal]),
        integrality=np.concatenate([np.ones(columns), np.zeros(many)]),
        bounds=Bounds(0.0, 1.0),
        constraints=limits,
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None or found.status != 0:
        raise KernelassayError(
            f"the integer program over {columns} inputs was not solved: {found.message}",
            hint="choose greedily, without the optimum beside it",
        )
    chosen = np.flatnonzero(found.x[:columns] > 0.5)
    assert len(chosen) <= budget, chosen
    assert floor is None or int(counts @ hits[:, chosen].any(axis=1)) >= floor, chosen
    return tuple(int(at) for at in left[chosen])


def _undominated(rows: Bools, price: NDArray[np.float64]) -> NDArray[np.intp]:
    """The columns to choose from: no other hits all that one does, and more, or for less.

    Of columns alike in both the first is left. Some optimum has none of the others.
    """
    hit = rows.astype(np.int64)
    within = (hit.T @ (1 - hit)) == 0  # (a, b): b hits all that a hits
    no_dearer = price[None, :] <= price[:, None]
    alike = within & within.T & (price[None, :] == price[:, None])
    earlier = np.tri(len(price), k=-1, dtype=bool)
    dominated = within & no_dearer & (~alike | earlier)
    np.fill_diagonal(dominated, False)
    return np.flatnonzero(~dominated.any(axis=1))
