"""Maximum coverage, and the parts that mutants are held out by: the laws they keep."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kernelassay.mutation.rule import FAMILIES
from kernelassay.synthesis import cover
from kernelassay.synthesis.folds import HELD_OUT, half, parts
from kernelassay.synthesis.pool import Mutant

COLUMNS = 6
unhurried = settings(deadline=None)


@st.composite
def instances(draw):
    rows = draw(st.integers(0, 10))
    columns = draw(st.integers(1, COLUMNS))
    hits = draw(arrays(bool, (rows, columns)))
    costs = draw(arrays(np.int64, columns, elements=st.integers(1, 50)))
    return hits, costs


def by_brute_force(hits, costs, budget):
    """The most rows that a set of columns hits, and the least cost of such a set."""
    columns = range(hits.shape[1])
    sets = [s for k in range(budget + 1) for s in combinations(columns, min(k, len(columns)))]
    best = max(cover.covered(hits, s) for s in sets)
    return best, min(int(costs[list(s)].sum()) for s in sets if cover.covered(hits, s) == best)


@unhurried
@given(instances(), st.integers(0, COLUMNS))
def test_an_exact_cover_is_that_of_all_sets_tried(instance, budget):
    hits, costs = instance
    chosen = cover.exact(hits, costs, budget)
    assert len(chosen) <= budget
    found = cover.covered(hits, chosen), int(costs[list(chosen)].sum())
    assert found == by_brute_force(hits, costs, budget)


@unhurried
@given(instances())
def test_the_cheapest_cover_misses_nothing_and_no_other_such_set_costs_less(instance):
    hits, costs = instance
    chosen = cover.cheapest(hits, costs)
    assert cover.covered(hits, chosen) == int(hits.any(axis=1).sum())
    assert int(costs[list(chosen)].sum()) == by_brute_force(hits, costs, hits.shape[1])[1]


@unhurried
@given(instances(), st.integers(1, COLUMNS))
def test_greed_gains_with_its_budget_keeps_what_it_chose_and_never_beats_the_optimum(
    instance, budget
):
    hits, costs = instance
    less, more = cover.greedy(hits, budget - 1), cover.greedy(hits, budget)
    assert more[: len(less)] == less
    assert cover.covered(hits, less) <= cover.covered(hits, more)
    best = cover.covered(hits, cover.exact(hits, costs, budget))
    assert (1 - 1 / np.e) * best <= cover.covered(hits, more) <= best


@unhurried
@given(instances())
def test_greed_without_a_limit_ends_when_nothing_is_left_to_hit(instance):
    hits, _ = instance
    chosen = cover.greedy(hits, 99)
    assert cover.covered(hits, chosen) == int(hits.any(axis=1).sum())
    gains = [cover.covered(hits, chosen[: k + 1]) for k in range(len(chosen))]
    assert all(a < b for a, b in zip([0, *gains], gains, strict=False))


@unhurried
@given(instances(), st.integers(0, COLUMNS))
def test_rounds_begin_as_greed_does_and_use_the_budget_on_columns_that_hit(instance, budget):
    hits, _ = instance
    chosen = cover.in_rounds(hits, budget)
    first = cover.greedy(hits, budget)
    assert chosen[: len(first)] == first
    assert len(set(chosen)) == len(chosen) == min(budget, int(hits.any(axis=0).sum()))


@given(instances(), st.integers(1, 3), st.randoms())
def test_no_choice_depends_on_the_order_of_rows(instance, budget, random):
    hits, costs = instance
    order = list(range(len(hits)))
    random.shuffle(order)
    shuffled = hits[order]
    assert cover.greedy(hits, budget) == cover.greedy(shuffled, budget)
    assert cover.exact(hits, costs, budget) == cover.exact(shuffled, costs, budget)
    assert cover.cheapest(hits, costs) == cover.cheapest(shuffled, costs)


def test_of_equal_columns_greed_takes_the_preferred_and_the_optimum_the_cheaper():
    hits = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=bool)
    assert cover.greedy(hits, 2) == (0, 2)
    assert cover.exact(hits, np.array([9, 2, 1]), 2) == (1, 2)
    assert cover.exact(hits, np.array([2, 2, 1]), 2) == (0, 2)


def test_the_optimum_beats_greed_where_the_widest_column_is_a_bad_start():
    hits = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 0], [1, 0, 1], [1, 0, 1], [0, 0, 1]], dtype=bool)
    costs = np.ones(3, dtype=np.int64)
    assert cover.covered(hits, cover.greedy(hits, 2)) == 5
    assert cover.covered(hits, cover.exact(hits, costs, 2)) == 6


def test_a_chance_leaves_worth_in_a_second_column_that_hits_the_same_rows():
    chances = np.array([[0.9, 0.9, 0.0], [0.9, 0.9, 0.0], [0.0, 0.0, 0.1]])
    assert cover.greedy_expected(chances, np.ones(3), 2) == (0, 1)
    assert cover.greedy_expected(chances, np.array([1.0, 1.0, 9.0]), 2) == (0, 2)


@given(st.integers(0, 3), st.integers(1, 4))
def test_nothing_to_hit_is_covered_by_nothing(rows, budget):
    hits = np.zeros((rows, 4), dtype=bool)
    costs = np.ones(4, dtype=np.int64)
    assert cover.greedy(hits, budget) == cover.exact(hits, costs, budget) == ()
    assert cover.cheapest(hits, costs) == ()


# ---- parts -------------------------------------------------------------------------------------

names = st.text("abcdef0123456789", min_size=1, max_size=12)
mutants = st.lists(
    st.builds(Mutant, names, names, names, st.sampled_from(FAMILIES)), unique=True, max_size=30
)


@pytest.mark.parametrize("way", HELD_OUT)
@given(mutants)
def test_every_mutant_is_scored_once_and_by_what_was_chosen_without_it(way, mutants):
    key = HELD_OUT[way]
    scored = [m for part in parts(mutants, way) for m in mutants if key(m, "") == part]
    assert sorted(map(hash, scored)) == sorted(map(hash, mutants))
    for part in parts(mutants, way):
        seen = [m for m in mutants if key(m, "") != part]
        assert not {key(m, "") for m in seen} & {part}


@pytest.mark.parametrize("way", ["rule", "family", "problem"])
@given(mutants)
def test_mutants_of_one_kind_are_never_on_both_sides(way, mutants):
    found = {}
    for mutant in mutants:
        found.setdefault(getattr(mutant, way), set()).add(HELD_OUT[way](mutant, ""))
    assert all(len(places) == 1 for places in found.values())


def test_another_salt_divides_otherwise():
    names = [f"{number:012x}" for number in range(400)]
    same = sum(half(name) == half(name, "1") for name in names)
    assert 150 < same < 250


def test_halves_are_halves():
    count = sum(half(f"{number:012x}") == "half 1" for number in range(4000))
    assert 1900 < count < 2100
