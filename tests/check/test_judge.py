import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.check import judge
from kernelassay.check.values import Build, Expected, Prepared
from kernelassay.execute import wire
from kernelassay.inputs import InputSpec


def prepared(exact, *singles, dtype="float32"):
    exact = np.asarray(exact, dtype=np.float64)
    return Prepared(
        spec=InputSpec("i", "official", 0),
        digest="",
        inputs=(wire.Held("float32", (1,), (1,), bytes(4)),),
        build=Build("b", 0, ()),
        state={},
        expected=(Expected(dtype, exact.shape, exact.size * 4),),
        singles=tuple((np.asarray(s, dtype=np.float32),) for s in singles or (exact,)),
        exact=(exact,),
        draws=False,
        does=(),
    )


def wrong(out, exact, limit):
    return judge.wrong([np.asarray(out, dtype=np.float32)], [np.asarray(exact)], limit)


def test_small_outputs_are_judged_in_their_own_size():
    exact = np.full((4, 256), 1 / 256)
    assert wrong(np.zeros((4, 256)), exact, 1e-2) is not None
    assert wrong(exact * 1.005, exact, 1e-3) is not None
    assert wrong(exact * 1.0005, exact, 1e-3) is None


@given(st.floats(1e-6, 1.0), st.floats(1e-4, 1e-2))
def test_below_one_the_size_of_a_problem_does_not_matter(size, limit):
    exact = np.linspace(-1.0, 1.0, 33)
    near, far = exact * (1 + limit / 2), exact * (1 + 4 * limit)
    assert judge.wrong([near * size], [exact * size], limit) is None
    assert judge.wrong([far * size], [exact * size], limit) is not None


def test_the_limit_grows_with_the_rounding_of_correct_runs_up_to_a_bound():
    exact = np.ones(8)
    assert judge.bounds(prepared(exact)).limit == 1e-4
    assert judge.bounds(prepared(exact, exact * (1 + 4e-5))).limit == pytest.approx(
        32 * 2e-5, rel=0.01
    )
    assert judge.bounds(prepared(exact, exact * (1 + 4e-3))).limit == 1e-2
    assert "stray" in judge.bounds(prepared(exact, exact * 1.02)).refusal


def test_an_input_judges_nobody_if_correct_runs_differ_beyond_half_the_tolerance():
    one = prepared(np.ones(8), np.ones(8) * (1 + 4e-5))
    assert not judge.bounds(one, 1e-4).refusal
    assert judge.bounds(one, 3e-5).refusal
    assert judge.bounds(prepared([1.0, np.inf])).refusal == "the reference is not finite"


def test_whole_numbers_must_be_equal():
    exact = np.asarray([100_000, 7])
    assert judge.wrong([np.asarray([100_001, 7])], [exact], 1e-2) is not None
    assert judge.wrong([exact.copy()], [exact], 1e-2) is None


def test_the_first_wrong_place_and_the_pattern_are_named():
    exact = np.arange(32.0).reshape(4, 8)
    out = exact.copy()
    out[2, 3:] = -1.0
    found = wrong(out, exact, 1e-3)
    assert (found.position, found.found, found.right, found.count) == ((2, 3), -1.0, 19.0, 5)
    assert found.pattern.kind == "tile"
    out[2:] = np.nan
    found = wrong(out, exact, 1e-3)
    assert found.pattern.what == "the tail from flat index 16, all not finite"
    assert found.error == np.inf


@given(st.integers(0, 3), st.integers(0, 7))
def test_a_nan_anywhere_is_wrong(row, column):
    exact = np.ones((4, 8))
    out = exact.copy()
    out[row, column] = np.nan
    assert wrong(out, exact, 1e-2).position == (row, column)
