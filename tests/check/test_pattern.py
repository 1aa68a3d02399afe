import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from kernelassay.check.pattern import KINDS, pattern_of


def mask(shape, *slices):
    found = np.zeros(shape, dtype=bool)
    found[slices] = True
    return found


@pytest.mark.parametrize(
    ("wrong", "kind", "what"),
    [
        (mask((4, 8), slice(None)), "everything", "everything"),
        (mask((4, 8), 2, 3), "element", "the element [2, 3]"),
        (mask((4, 8), 2), "rows", "the row 2"),
        (mask((4, 8), slice(1, 3)), "rows", "the rows 1 to 2"),
        (mask((8, 4), slice(0, None, 3)), "rows", "the rows 0, 3, 6"),
        (mask((4, 8), slice(None), 7), "columns", "the column 7"),
        (mask((4, 8), slice(None), slice(0, None, 3)), "columns", "the columns 0, 3, 6"),
        (mask((4, 8), slice(3, None)), "tail", "the tail from flat index 24"),
        (mask((4, 8), slice(None), slice(6, None)), "tail", "the tail of axis 1 from 6"),
        (mask((4, 8), slice(1, 3), slice(2, 5)), "tile", "the tile [1:3, 2:5]"),
        (mask((2, 4, 8), 1, 2), "rows", "one row [1:2, 2:3, 0:8]"),
        (np.eye(8, dtype=bool), "scattered", "scattered"),
    ],
)
def test_a_pattern_is_told_from_the_places(wrong, kind, what):
    found = pattern_of(wrong)
    assert (found.kind, found.what) == (kind, what)
    assert found.how


@given(arrays(bool, array_shapes(max_dims=4), elements=st.booleans()).filter(np.any))
def test_every_set_of_places_has_one_of_the_patterns(wrong):
    assert pattern_of(wrong).kind in KINDS


@given(array_shapes(max_dims=3, min_side=2), st.data())
def test_one_wrong_element_is_named(shape, data):
    place = tuple(data.draw(st.integers(0, extent - 1)) for extent in shape)
    found = pattern_of(mask(shape, *place))
    assert found.kind == "element"
    assert str(list(place)) in found.what
