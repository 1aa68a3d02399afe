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
    """Launch one of the executor's own kernels: arrays in, and ``found`` as it leaves it.

    The kernel gets arrays without their ``skipped`` first elements.
    """
    image = image_of(own_source())

    def start(kernel: str, grid, arrays, numbers, found: int, surveyed=(), skipped: int = 0):
        buffers = {f"a{i}": array for i, array in enumerate(arrays)}
        held = {}
        for name, array in {**buffers, "found": np.zeros(found, np.uint64)}.items():
            held[name] = device.buffer(name, array.nbytes, role="updated")
            held[name].array[:] = array.reshape(-1).view(np.uint8)
        for name, words in surveyed:
            held[name] = device.buffer(name, words.nbytes, role="operand")
            held[name].array[:] = words.view(np.uint8)
            held["a0"].array[:8].view(np.uint64)[0] = held[name].address
        pointers = (PointerArgument(n, skipped * a.itemsize) for n, a in buffers.items())
        arguments = (*pointers, *numbers, PointerArgument("found"))
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


def nudged(values, random, most: int = 3):
    """Finite values moved by up to ``most`` representable numbers; none through zero."""
    bits = {4: np.int32, 8: np.int64}[values.itemsize]
    steps = random.integers(-most, most + 1, values.shape).astype(bits)
    moves = np.isfinite(values) & (np.abs(values).view(bits) > most)
    return np.where(moves, (values.view(bits) + steps).view(values.dtype), values)


def hard_references(count: int, random):
    """Numbers of all magnitudes, small ones above all, with zeros and denormals; no NaN."""
    sizes = random.choice([0.0, 5e-324, 1e-310, 1e-42, 1e-9, 1e-3, 1.0, 77.0, 1e30, 1e300], count)
    with np.errstate(under="ignore"):
        return sizes * random.uniform(-1, 1, count)


def hard_outputs(ref, random):
    """Outputs at a reference, near it, at a tolerance of the ladder from it, or anywhere."""
    kind, sign = random.integers(0, 6, ref.size), random.choice([-1.0, 1.0], ref.size)
    at_tolerance = ref + sign * (1 + np.abs(ref)) * random.choice(oracle.LADDER, ref.size)
    edges = random.choice([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, 1.7e308, -1.7e308], ref.size)
    last = np.where(random.random(ref.size) < 0.3, edges, ref * random.uniform(0, 2, ref.size))
    choices = [ref, nudged(ref, random), at_tolerance, nudged(at_tolerance, random), 0 * ref, last]
    return np.choose(kind, choices)


hard = given(
    count=st.integers(1, 700),
    skipped=st.integers(0, 4),
    odd=st.sampled_from([0.0, 0.02]),
    seed=st.integers(0, 2**32 - 1),
)


@settings(deadline=None, max_examples=80)
@hard
def test_doubles_at_tolerances_are_graded_on_the_device_as_on_the_host(
    started, count, skipped, odd, seed
):
    random = np.random.default_rng(seed)
    ref = hard_references(count, random)
    out, exact = hard_outputs(ref, random), nudged(ref, random)
    exact[random.random(count) < odd] = np.nan
    exact[random.random(count) < odd] = np.inf
    graded(started, "ka_grade_double", out, ref, exact, skipped)


@settings(deadline=None, max_examples=80)
@hard
def test_floats_at_tolerances_are_graded_on_the_device_as_on_the_host(
    started, count, skipped, odd, seed
):
    random = np.random.default_rng(seed)
    exact = hard_references(count, random)
    with np.errstate(over="ignore"):
        out = hard_outputs(exact, random).astype(np.float32)
        ref = nudged(exact.astype(np.float32), random)
    # No float is at a tolerance t of a given number; this number is of a given float.
    ladder = random.choice(oracle.LADDER, count)
    small = np.abs(out) < 0.5 * ladder
    beside = np.where(small, (out - ladder) / np.where(small, 1 - ladder, 1), exact)
    exact = nudged(beside, random)
    ref[random.random(count) < odd] = np.nan
    ref[random.random(count) < odd] = -np.inf
    graded(started, "ka_grade_float", out, ref, exact, skipped)


# Per measure: (|ref|, |out - ref|) that hold the other measures up, and the sizes of references at
# which only this one rises, to the quotient by its divisor.
ALONE = {
    "critical_tolerance": ([(1, 1.1), (0, 0.5)], (0.01, 0.1), 0.6, lambda size: 1 + size),
    "critical_max_rule": ([(0, 1), (100, 5)], (0.9, 3), 1.2, lambda size: np.maximum(1, size)),
    "max_abs": ([(0, 1)], (4, 5.9), 2.0, np.ones_like),
    "max_rel": ([(1, 1e-3)], (1e-9, 1e-8), 1 / 3, lambda size: size),
    "max_rel of denormals": ([(1, 1e-3)], (1e-320, 1e-319), 1 / 3, lambda size: size),
}


@pytest.mark.parametrize("measure", ALONE)
@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_maximum_rises_by_one_representable_number(started, measure, seed):
    others, sizes, quotient, divisor = ALONE[measure]
    random = np.random.default_rng(seed)
    size = random.uniform(*sizes, 600)
    difference = quotient * divisor(size)
    difference[-1:] = nudged(difference[-1:], random)
    first, apart = np.array(others * 256, np.float64).T
    exact = -np.concatenate([first, size])
    out = exact + np.concatenate([apart, difference])
    graded(started, "ka_grade_double", out, out, exact)


def graded(started, kernel, out, ref, exact, skipped=0):
    """Grade on the device, from an address that is aligned or not, and compare with the host."""
    arrays = [np.concatenate([a[:1].repeat(skipped), a]) for a in (out, ref, exact)]
    found = started(kernel, (2, 1, 1), arrays, [out.size], 32, skipped=skipped)
    with np.errstate(over="ignore"):
        for start, reference in ((0, ref), (15, exact)):
            assert verdict_of(found, start, out.size) == oracle.grade(out, reference)


def test_the_ladder_falls():
    assert list(oracle.LADDER) == sorted(oracle.LADDER, reverse=True)


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
