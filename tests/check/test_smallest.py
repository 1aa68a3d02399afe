from hypothesis import given
from hypothesis import strategies as st

from kernelassay.check.smallest import Trial, smallest
from kernelassay.inputs import InputSpec
from tests.check.conftest import suite_problem

PROBLEM = suite_problem("suite/softmax_rows")  # batch_size 16, features 256
SPEC = InputSpec("failing", "official", 7)


def sizes(spec):
    return {"batch_size": 16, "features": 256} | dict(spec.overrides)


def found_by(fails, spec=SPEC, trials=60, shapes=True):
    def failing(tried, primer):
        return Trial(tried, (), None) if fails(tried, primer) else None

    return smallest(PROBLEM, spec, failing, trials=trials, shapes=shapes)


@given(st.integers(1, 16), st.integers(1, 256))
def test_what_is_found_fails_and_is_no_larger(rows, columns):
    def fails(spec, primer):
        now = sizes(spec)
        return now["batch_size"] >= rows and now["features"] >= columns

    best = found_by(fails)
    now = sizes(best.spec)
    assert rows <= now["batch_size"] <= 16
    assert columns <= now["features"] <= 256
    assert best.after == ""


def test_it_is_minimal_where_the_trials_suffice():
    best = found_by(lambda spec, primer: sizes(spec)["features"] >= 3)
    assert sizes(best.spec) == {"batch_size": 1, "features": 3}
    assert best.spec.transform == "ones"


def test_values_stay_that_are_needed():
    spec = InputSpec("failing", "targeted", 7, "huge-3e5")
    best = found_by(lambda spec, primer: spec.transform == "huge-3e5", spec)
    assert best.spec.transform == "huge-3e5"
    assert sizes(best.spec) == {"batch_size": 1, "features": 1}


def test_a_failure_that_needs_an_earlier_input_is_found_with_one():
    best = found_by(lambda spec, primer: primer is not None)
    assert best.after == "another input of the same sizes"


def test_a_failure_that_does_not_come_again_has_no_smallest_input():
    assert found_by(lambda spec, primer: False) is None


def test_trials_are_bounded_and_sizes_stay_where_they_must():
    assert found_by(lambda spec, primer: True, trials=5).tried <= 5
    assert found_by(lambda spec, primer: True, shapes=False).spec.overrides == ()
