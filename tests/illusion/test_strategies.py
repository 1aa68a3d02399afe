"""What strategies draw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.errors import UsageError
from kernelassay.illusion.cases import STRIDED
from kernelassay.illusion.schema import Schema
from kernelassay.illusion.strategies import PUBLISHED, STRATEGIES, named, strategy
from kernelassay.illusion.values import STRUCTURED

ROWS = Schema({"B": (1, 2, 8), "H": (1, 3, 256, 1025)}, {"x": ("B", "H")}, ("B", "H"))
PRODUCT = Schema(
    {"M": (1, 7), "K": (1, 3, 64), "N": (2, 15)}, {"a": ("M", "K"), "b": ("K", "N")}, ("M", "N")
)
DTYPES = ("float32", "float16")


@given(
    st.sampled_from(sorted(STRATEGIES)),
    st.integers(0, 2**40),
    st.integers(1, 20),
    st.integers(1, 20),
)
def test_a_longer_draw_begins_with_the_shorter_one(name, seed, short, more):
    one = strategy(name)
    longer = one.cases(ROWS, DTYPES, seed=seed, count=short + more)
    assert longer[:short] == one.cases(ROWS, DTYPES, seed=seed, count=short)
    assert [case.index for case in longer] == [*range(short + more)]
    assert {case.strategy for case in longer} == {name}


@given(st.sampled_from(sorted(STRATEGIES)), st.integers(0, 2**40))
def test_another_seed_draws_other_cases(name, seed):
    first, other = (strategy(name).cases(ROWS, DTYPES, seed=s, count=8) for s in (seed, seed + 1))
    assert {case.seed for case in first}.isdisjoint(case.seed for case in other)


@pytest.mark.parametrize(("name", "sizes"), [("boundary", {1, 3, 7}), ("regular", {128, 256, 512})])
def test_only_a_dimension_named_h_is_changed(name, sizes):
    cases = strategy(name).cases(ROWS, DTYPES, seed=0, count=60)
    assert {dict(case.sizes)["H"] for case in cases} == sizes
    assert {dict(case.sizes)["B"] for case in cases} == {1, 2, 8}
    there = strategy(name).cases(PRODUCT, DTYPES, seed=0, count=60)
    assert {dict(case.sizes)["K"] for case in there} == {1, 3, 64}


@pytest.mark.parametrize(
    ("name", "dtype"), [("single_dtype_f32", "float32"), ("single_dtype_f16", "float16")]
)
def test_a_single_dtype_is_used_whatever_the_operator_has(name, dtype):
    for dtypes in (DTYPES, ("float32",)):
        cases = strategy(name).cases(ROWS, dtypes, seed=0, count=20)
        assert {case.dtype for case in cases} == {dtype}


def test_the_default_draws_every_size_dtype_and_kind_of_layout():
    cases = strategy("default").cases(ROWS, DTYPES, seed=0, count=200)
    assert {dict(case.sizes)["H"] for case in cases} == set(ROWS.dims["H"])
    assert {case.dtype for case in cases} == set(DTYPES)
    strided = sum(case.layout in STRIDED for case in cases)
    assert 70 < strided < 130
    assert {case.values for case in cases} == {"uniform"}


def test_one_shape_is_the_middle_one_in_float32_and_packed():
    cases = strategy("one_shape").cases(PRODUCT, DTYPES, seed=0, count=5)
    assert {case.sizes for case in cases} == {(("M", 7), ("K", 3), ("N", 15))}
    assert {(case.dtype, case.layout, case.values) for case in cases} == {
        ("float32", "contiguous", "unit")
    }
    assert len({case.seed for case in cases}) == 5


def test_pairwise_covers_every_edge_dtype_layout_and_kind_of_values_first():
    cases = strategy("pairwise").cases(ROWS, DTYPES, seed=3, count=12)
    assert {case.dtype for case in cases} == set(DTYPES)
    assert {case.values for case in cases} == set(STRUCTURED)
    assert {1, 8} <= {dict(case.sizes)["B"] for case in cases}
    assert {1, 1025} <= {dict(case.sizes)["H"] for case in cases}


@given(st.integers(0, 2**40), st.integers(1, 30))
def test_pairwise_draws_no_case_twice(seed, count):
    cases = strategy("pairwise").cases(ROWS, DTYPES, seed=seed, count=count)
    assert len({case.id for case in cases}) == count


def test_names_stand_for_one_several_or_all():
    assert named(()) == ("default",)
    assert named(("published",)) == PUBLISHED
    assert len(PUBLISHED) == 7
    assert named(("all",)) == tuple(STRATEGIES)
    assert named(("boundary", "published"))[0] == "boundary"
    with pytest.raises(UsageError, match="bondary"):
        named(("bondary",))
