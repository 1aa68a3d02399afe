"""The graded verdict says exactly what a re-run of each checker would say."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernelassay.oracle import LADDER, AcceptanceRule, critical, grade, merge, poison, unwritten

finite = st.floats(-1e6, 1e6, width=32)
floats = st.one_of(finite, st.sampled_from([np.nan, np.inf, -np.inf]))


def pairs(elements):
    shape = hnp.array_shapes(max_dims=2, max_side=6)
    return shape.flatmap(
        lambda s: st.tuples(
            hnp.arrays(np.float32, s, elements=elements),
            hnp.arrays(np.float32, s, elements=elements),
        )
    )


@given(pairs(floats), st.sampled_from(LADDER))
def test_the_sum_rule_is_allclose(pair, tolerance):
    out, ref = (a.astype(np.float64) for a in pair)
    expected = np.allclose(out, ref, atol=tolerance, rtol=tolerance)
    verdict = grade(out, ref)
    margin = abs(verdict.critical_tolerance - tolerance)
    if margin > 1e-12 * max(1.0, tolerance):  # at equality the two roundings may differ
        assert AcceptanceRule(tolerance).accepts(verdict) == expected


@given(pairs(finite), st.sampled_from(LADDER))
def test_the_max_rule_is_an_absolute_or_relative_bound(pair, tolerance):
    out, ref = (a.astype(np.float64) for a in pair)
    bound = np.maximum(tolerance, tolerance * np.abs(ref))
    difference = np.abs(out - ref)
    if not np.any(np.isclose(difference, bound, rtol=1e-9, atol=0)):
        accepted = AcceptanceRule(tolerance, form="max").accepts(grade(out, ref))
        assert accepted == bool((difference <= bound).all())


@given(pairs(floats), st.sampled_from(["sum", "max"]), st.sampled_from(["allclose", "matched"]))
def test_a_verdict_is_monotone_in_tolerance(pair, form, nonfinite):
    verdict = grade(*pair)
    accepted = [AcceptanceRule(t, form, nonfinite).accepts(verdict) for t in sorted(LADDER)]
    assert accepted == sorted(accepted)


@given(pairs(floats))
def test_the_ladder_counts_elements_beyond_each_tolerance(pair):
    verdict = grade(*pair)
    for tolerance, count in zip(LADDER, verdict.past, strict=True):
        assert (count > 0) == (verdict.critical_tolerance > tolerance)
    assert list(verdict.past) == sorted(verdict.past)


@given(pairs(floats))
def test_an_array_agrees_with_itself(pair):
    out, _ = pair
    verdict = grade(out, out)
    assert verdict.critical_tolerance == verdict.max_ulp == 0
    assert AcceptanceRule(0.0, nonfinite="matched").accepts(verdict)
    assert AcceptanceRule(0.0).accepts(verdict) == (not np.isnan(out).any())


@pytest.mark.parametrize(
    ("out", "ref", "accepted_by"),
    [
        ([np.nan], [np.nan], {"matched", "ignored"}),
        ([np.inf], [np.inf], {"matched", "ignored", "allclose"}),
        ([np.inf], [-np.inf], {"ignored"}),
        ([np.nan], [1.0], {"ignored"}),
        ([1.0], [np.nan], {"strict", "ignored"}),
        ([1.0], [1.0], {"strict", "matched", "ignored", "allclose"}),
    ],
)
def test_the_nonfinite_rule_is_a_parameter(out, ref, accepted_by):
    verdict = grade(np.array(out), np.array(ref))
    rules = ("allclose", "matched", "strict", "ignored")
    assert {r for r in rules if AcceptanceRule(1e-2, nonfinite=r).accepts(verdict)} == accepted_by


def test_ulp_counts_representable_numbers_across_zero():
    tiny = np.float32(np.finfo(np.float32).smallest_subnormal)
    assert grade(np.array([tiny]), np.array([-tiny])).max_ulp == 2
    one = np.float32(1)
    assert grade(np.array([np.nextafter(one, np.float32(2))]), np.array([one])).max_ulp == 1


def test_integer_outputs_are_graded_as_allclose_grades_them():
    verdict = grade(np.array([3, 10]), np.array([3, 12]))
    assert verdict.critical_tolerance == pytest.approx(2 / 13)
    assert verdict.max_ulp == 0


def test_a_shape_mismatch_is_no_verdict():
    with pytest.raises(ValueError, match="shape"):
        grade(np.zeros(3), np.zeros(4))


@given(pairs(floats), pairs(floats))
def test_merging_is_grading_the_concatenation(first, second):
    verdict = merge([grade(*first), grade(*second)])
    whole = grade(
        np.concatenate([first[0].ravel(), second[0].ravel()]),
        np.concatenate([first[1].ravel(), second[1].ravel()]),
    )
    assert verdict == whole or math.isnan(verdict.max_rel)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.int64])
def test_unwritten_elements_are_those_that_keep_the_mark(dtype):
    array = np.zeros((3, 4), dtype=dtype)
    poison(array)
    assert unwritten(array).all()
    array[1, 2] = 0
    assert np.flatnonzero(~unwritten(array)).tolist() == [6]
    if np.dtype(dtype).kind == "f":
        assert np.isnan(array).sum() == 11


def test_nan_from_arithmetic_is_not_taken_for_unwritten():
    with np.errstate(invalid="ignore"):
        computed = np.array([np.inf], dtype=np.float32) - np.float32(np.inf)
    assert not unwritten(computed).any()


def test_critical_picks_the_form():
    verdict = grade(np.array([3.0]), np.array([2.0]))
    assert critical(verdict, "sum") == pytest.approx(1 / 3)
    assert critical(verdict, "max") == pytest.approx(1 / 2)
