"""What the CUDA executor computes on a device is what ``oracle`` computes on arrays.

Its kernels are CUDA C++, so the CPU executor runs them here.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay import oracle
from kernelassay.execute.cuda.device import verdict_of
from kernelassay.execute.cuda.toolbox import own_source
from kernelassay.kernel import Launch, LaunchPlan, PointerArgument

FULL = 0xFFFFFFFFFFFFFFFF
EDGES = (0.0, -0.0, 1.0, -1e-3, 3e38, -3e38, 1e-42, np.nan, np.inf, -np.inf)
NUMBERS = st.one_of(st.sampled_from(EDGES), st.floats(width=32))
EXACT = st.one_of(st.sampled_from(EDGES), st.floats(-1e39, 1e39))
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, EXACT), min_size=1, max_size=90)


@pytest.fixture(scope="module")
def started(device, image_of):
    """Launch one of the executor's own kernels: arrays in, and ``found`` as it leaves it."""
    image = image_of(own_source())

    def start(kernel: str, grid, arrays, numbers, found: int, surveyed=()):
        buffers = {f"a{i}": array for i, array in enumerate(arrays)}
        held = {}
        for name, array in {**buffers, "found": np.zeros(found, np.uint64)}.items():
            held[name] = device.buffer(name, array.nbytes, role="updated")
            held[name].array[:] = array.reshape(-1).view(np.uint8)
        for name, words in surveyed:
            held[name] = device.buffer(name, words.nbytes, role="operand")
            held[name].array[:] = words.view(np.uint8)
            held["a0"].array[:8].view(np.uint64)[0] = held[name].address
        arguments = (*(PointerArgument(n) for n in buffers), *numbers, PointerArgument("found"))
        launch = Launch(kernel, grid, (64, 1, 1), 0, arguments)
        try:
            result = device.run(image, LaunchPlan((), (launch,)), held, fuel=10**8)
            assert result.outcome == "ok", result
            return held["found"].array.view(np.uint64).copy()
        finally:
            for buffer in held.values():
                buffer.release()

    return start


@settings(deadline=None, max_examples=150)
@given(rows=ROWS)
def test_an_output_is_graded_on_the_device_as_on_the_host(started, rows):
    out, ref, exact = zip(*rows, strict=True)
    out, ref = np.array(out, np.float32), np.array(ref, np.float32)
    exact = np.array(exact, np.float64)
    found = started("ka_grade_float", (2, 1, 1), [out, ref, exact], [len(rows)], 32)
    for start, reference in ((0, ref), (15, exact)):
        assert verdict_of(found, start, len(rows)) == oracle.grade(out, reference)


@settings(deadline=None, max_examples=30)
@given(values=st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=40))
def test_integers_are_graded_as_doubles(started, values):
    out = np.array(values, np.int64)
    ref = np.roll(out, 1)
    arrays = [x.astype(np.float64) for x in (out, ref, out)]
    found = started("ka_grade_double", (1, 1, 1), arrays, [len(values)], 32)
    assert verdict_of(found, 0, len(values)) == oracle.grade(out, ref)
    assert verdict_of(found, 15, len(values)) == oracle.grade(out, out)


def mixed(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & FULL
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & FULL
    return x ^ (x >> 31)


def surveyed(words, width: int, expected: int) -> list[int]:
    keys = [(int(w) + (i + 1) * 0x9E3779B97F4A7C15) & FULL for i, w in enumerate(words)]
    first = sum(mixed(key) for key in keys) & FULL
    second = sum(mixed(key ^ 0xD1B54A32D192ED03) for key in keys) & FULL
    dtype = {0: np.uint8, 2: np.float16, 4: np.float32, 8: np.float64}[width]
    marks = int(oracle.unwritten(words.view(dtype)).sum()) if width else 0
    return [first, second, marks, int((words != expected).sum())]


@settings(deadline=None, max_examples=60)
@given(
    width=st.sampled_from([0, 2, 4, 8]),
    marked=st.lists(st.booleans(), min_size=1, max_size=150),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_survey_tells_bits_unwritten_elements_and_strange_words(started, width, marked, seed):
    random = np.random.default_rng(seed)
    elements = np.zeros((len(marked), 8), np.uint8)
    elements[:] = random.integers(0, 256, elements.shape)
    for element, mark in zip(elements, marked, strict=True):
        if mark:
            oracle.poison(element.view({2: np.float16, 8: np.float64}.get(width, np.float32)))
    words = elements.reshape(-1).view(np.uint32)
    expected = int(words[0])
    table = np.zeros(1, [("at", "<u8"), ("count", "<u8"), ("width", "<u4"), ("like", "<u4")])
    table["count"], table["width"], table["like"] = words.size, width, expected
    found = started("ka_survey", (3, 1, 1), [table.view(np.uint8)], [], 4, [("words", words)])
    assert found.tolist() == surveyed(words, width, expected)
