"""What the fuzzing oracle says of an output."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kernelassay.execute.execution import Execution
from kernelassay.illusion.corpus import entry
from kernelassay.illusion.oracle import Rule, judge, nearest_rank, statistics
from kernelassay.oracle import poison

OP = entry("softmax")
TOLERANCE = 1e-3
ANY = arrays.arrays(
    np.float64,
    st.integers(1, 12),
    elements=st.one_of(
        st.floats(-100, 100), st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-300])
    ),
)


def judged(output, reference, dtype="float32", **more):
    return judge(Execution("ok", "", output, **more), reference, OP, dtype)


def failure(output, reference, rule=Rule(), tolerance=TOLERANCE):  # noqa: B008 - frozen
    return rule.failure(judged(output, reference), tolerance)


def test_shape_comes_before_dtype_and_dtype_before_values():
    reference = np.zeros(3)
    assert judged(np.zeros(4, np.float16), reference).failure == "shape"
    assert judged(np.ones(3, np.float16), reference).failure == "dtype"
    assert failure(np.full(3, np.nan, np.float32), reference) == "nonfinite"
    far = np.array([1.0, np.nan, 0.0], np.float32)
    assert failure(far, reference) == "tolerance"


def test_a_run_that_gave_nothing_fails_by_its_outcome():
    found = judge(Execution("timeout", "too long", None), np.zeros(3), OP, "float32")
    assert (found.failure, found.rounded, found.output_digest) == ("outcome", None, "")
    assert "timeout: too long" in found.detail


@given(ANY)
def test_the_rounded_reference_itself_passes_unless_any_nonfinite_element_is_wrong(reference):
    output = reference.astype(np.float32)
    for nonfinite in ("matched", "ignored"):
        assert failure(output, reference, Rule(nonfinite)) == ""
    strict = "" if np.isfinite(reference).all() else "nonfinite"
    assert failure(output, reference, Rule("strict")) == strict


@given(ANY, st.floats(1e-6, 1e3))
def test_what_passes_passes_at_every_larger_tolerance(reference, tolerance):
    output = (reference + 0.5).astype(np.float32)
    for nonfinite in ("strict", "matched", "ignored"):
        if failure(output, reference, Rule(nonfinite), tolerance) == "":
            assert failure(output, reference, Rule(nonfinite), 2 * tolerance) == ""
            assert failure(output, reference, Rule(nonfinite, scale=2.0), tolerance) == ""


def test_a_nan_that_the_output_lacks_is_seen_by_matched_alone():
    reference, output = np.array([np.nan, 1.0]), np.array([0.0, 1.0], np.float32)
    assert failure(output, reference, Rule("strict")) == ""
    assert failure(output, reference, Rule("matched")) == "nonfinite"
    assert failure(output, reference, Rule("ignored")) == ""


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_elements_that_were_never_written_count_as_zero(dtype):
    output = np.ones(5, dtype)
    poison(output[3:])
    reference = np.array([1.0, 1.0, 1.0, 0.0, 1e-4])
    found = judged(output, reference, dtype, unwritten=2)
    assert Rule().failure(found, TOLERANCE) == ""
    reference[4] = 1.0
    found = judged(output, reference, dtype, unwritten=2)
    assert Rule().failure(found, TOLERANCE) == "tolerance"


def test_the_exact_reference_is_not_rounded():
    reference = np.array([1.0 + 2**-14])
    output = np.ones(1, np.float16)
    found = judge(Execution("ok", "", output), reference, OP, "float16")
    assert Rule().failure(found, 2**-15) == ""
    assert Rule(reference="exact").failure(found, 2**-15) == "tolerance"


@given(ANY)
def test_quantiles_are_errors_that_occur_in_order(reference):
    output = (reference * 1.5).astype(np.float32)
    found = statistics(output, reference.astype(np.float32))
    assert list(found.quantiles) == sorted(found.quantiles)
    with np.errstate(invalid="ignore"):
        errors = np.abs(output.astype(float) - reference.astype(np.float32).astype(float))
    occurring = {0.0, *errors[np.isfinite(errors)]}
    assert set(found.quantiles) <= occurring


def test_ranks_are_the_nearest():
    assert nearest_rank([4.0, 1.0, 3.0, 2.0], 0.5) == 3.0
    assert nearest_rank([], 0.95) == 0.0
    assert nearest_rank([7.0], 0.95) == 7.0
