import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.errors import UnsupportedError
from kernelassay.execute import wire
from kernelassay.execute.wire import Held

held = st.binary(min_size=1, max_size=64).map(lambda data: Held("uint8", (len(data),), (1,), data))
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | held
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(values, max_size=4))
def test_arguments_cross_unchanged(arguments):
    tensors = []
    encoded = wire.encode(arguments, tensors)
    assert wire.decode(encoded, tensors) == arguments


def test_a_value_without_a_form_is_refused():
    with pytest.raises(UnsupportedError, match="a object cannot be handed"):
        wire.encode([object()], [])


@given(st.lists(held, max_size=5))
def test_tensors_of_a_region_lie_between_guards(tensors):
    offsets, end = wire.placed(tensors)
    edges = [0, *(o + len(h.data) for o, h in zip(offsets, tensors, strict=True))]
    gaps = [b - a for a, b in zip(edges, [*offsets, end], strict=True)]
    assert all(gap >= wire.GUARD_BYTES for gap in gaps)
    assert all(offset % 256 == 0 for offset in offsets)


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    os.close(read)


def soon():
    return time.monotonic() + 0.2


def test_a_frame_arrives_as_it_was_sent(pipe):
    read, write = pipe
    wire.send(write, wire.pack({"number": 3}, [b"abc"]))
    source = wire.Source(read)
    assert source.head(soon()) == {"number": 3}
    assert source.bytes(3, soon()) == b"abc"
    os.close(write)
    with pytest.raises(wire.ClosedError):
        source.head(soon())


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x02\x00\x00\x00[]",
        b"\x02\x00\x00\x00{]",
        b"\x00\x80\x00\x00" + b"[" * 0x8000,
    ],
    ids=["too long", "no object", "no JSON", "too deep"],
)
def test_what_is_no_frame_is_told(pipe, data):
    read, write = pipe
    os.write(write, data)
    with pytest.raises(wire.BrokenFrameError):
        wire.Source(read).head(soon())
    os.close(write)


def test_half_a_frame_is_silence(pipe):
    read, write = pipe
    os.write(write, b"\x09\x00\x00\x00{")
    with pytest.raises(wire.SilentError):
        wire.Source(read).head(soon())
    os.close(write)
