"""What a tolerance cannot see grows with the sizes that an output is spread over."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.analysis.vacuity import BlindBand, growth

BAND = BlindBand(
    problem="suite/p",
    overrides=(),
    tolerance=1e-2,
    largest_output=1.0,
    mean_output=1.0,
    undetectable=1.0,
    zeros_pass=False,
    copy_passes=None,
    noise_passes=None,
    zeros_error=1.0,
    copy_error=None,
    noise_error=None,
    official_shape=True,
)


def bands(undetectable, **fixed):
    """One band per size, and its undetectable error."""
    return [
        replace(BAND, overrides=(("size", size), *fixed.items()), undetectable=error)
        for size, error in undetectable.items()
    ]


@given(st.floats(-2, 2), st.sets(st.integers(1, 10**6), min_size=2, max_size=6), st.floats(0.1, 10))
def test_a_power_law_is_found(exponent, sizes, factor):
    (found,) = growth(bands({size: factor * size**exponent for size in sizes}))
    assert math.isclose(found.exponent, exponent, abs_tol=1e-6)
    assert (found.size, found.smallest, found.largest) == ("size", min(sizes), max(sizes))


def test_bands_are_grouped_by_the_sizes_that_stay():
    some = bands({10: 1.0, 100: 10.0}, rows=3) + bands({10: 5.0, 100: 5.0}, rows=4)
    found = {one.others: one.exponent for one in growth(some) if one.size == "size"}
    assert found == pytest.approx({(("rows", 3),): 1.0, (("rows", 4),): 0.0}, abs=1e-9)


def test_the_order_in_which_sizes_were_named_does_not_matter():
    first, last = (("a", 1), ("n", 10), ("b", 2)), (("b", 2), ("a", 1), ("n", 100))
    some = [replace(BAND, overrides=first), replace(BAND, overrides=last, undetectable=10.0)]
    (found,) = growth(some)
    assert (found.size, found.exponent) == ("n", pytest.approx(1.0))


@pytest.mark.parametrize("some", [bands({10: 1.0}), bands({10: 1.0, 20: None}), [BAND, BAND]])
def test_one_size_or_an_unbounded_band_tells_of_no_growth(some):
    assert growth(some) == []
