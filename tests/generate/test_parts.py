"""What generators are made of: values with a scale, edges of kernels, points, greedy covers."""

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.errors import UsageError
from kernelassay.input_values import TRANSFORMS, named_transform, transformed
from kernelassay.inputs import InputSpec
from kernelassay.problem import Lever
from kernelassay.substrate.lowering import MAX_BLOCKS
from kernelassay.synthesis.generate.geometry import (
    edges,
    numbers,
    one_large,
    spread,
    tiles,
    wraps,
)
from kernelassay.synthesis.generate.point import Point
from kernelassay.synthesis.generate.search import covering, witnessed
from kernelassay.synthesis.generate.settling import settled, settled_each
from kernelassay.synthesis.generate.target import Tried, Wish, named, spec
from kernelassay.tasks import run_task
from tests.generate.sessions import problem

NUMBERS = st.floats(1e-6, 1e6).map(lambda x: float(f"{x:.4g}"))

# ---- values --------------------------------------------------------------------------------------


@given(st.sampled_from(["sign-mixed", "official", "ramp"]), NUMBERS, NUMBERS)
def test_values_with_a_scale_and_a_shift_are_those_of_their_base_scaled_and_moved(base, by, plus):
    drawn = [torch.rand(4, 5)]
    (plain,) = transformed(drawn, TRANSFORMS[base], 3)
    (scaled,) = transformed(drawn, named_transform(f"{base}:x{by:g}:+{plus:g}"), 3)
    assert torch.equal(scaled, plain * by + plus)


def test_a_scale_and_a_shift_may_be_left_out():
    drawn = [torch.rand(4, 5)]
    (plain,) = transformed(drawn, TRANSFORMS["official"], 3)
    assert torch.equal(transformed(drawn, named_transform("official:x2"), 3)[0], plain * 2)
    assert torch.equal(transformed(drawn, named_transform("official:+-2"), 3)[0], plain - 2)


BAD = ["sign-mixd:x2", "sign-mixed:2", "sign-mixed:xnan", "sign-mixed:x1:+inf", ":x2", "ramp:+:x2"]


@pytest.mark.parametrize("name", BAD)
def test_a_transform_that_is_none_is_a_usage_error(name):
    with pytest.raises(UsageError, match="unknown transform"):
        named_transform(name)


# ---- edges ---------------------------------------------------------------------------------------

KERNEL = """
// 77 is in a comment, /* and so is 78
#define TILE 32 /* 79 */
extern "C" __global__ void k(const float* x, float* y, int n) {
    __shared__ float partial[8];
    for (int i = blockIdx.x * 256u + threadIdx.x; i < n; i += gridDim.x * 256) {
        float4 v = reinterpret_cast<const float4*>(x)[i];
        y[i] = v.x * 0.5f + 1e3f + 7.0;
    }
}
"""


def test_the_tiles_of_a_source_are_its_integers_and_vector_widths():
    assert tiles(KERNEL) == (4, 8, 32, 256)
    assert wraps(KERNEL) and not wraps("int grid = 3;")


def test_the_numbers_of_a_line_are_all_that_stand_in_it():
    assert numbers("y = x * 0.5f + 3; // 9") == (0.5, 3.0)


@given(st.lists(st.integers(2, 1024), min_size=1, max_size=6, unique=True))
def test_every_tile_has_an_extent_on_each_side_of_its_edges(sizes):
    found = edges(f"int a = {n};" for n in sizes)
    assert {n + 1 for n in sizes} == set(found.past)
    assert {n - 1 for n in sizes} == set(found.below)
    assert all(n % 4 == 0 and (n - 4) in sizes for n in found.whole)
    assert {*found.past, *found.whole, *found.below, *found.twice, *found.long, 1} == set(
        found.ladder
    )
    assert len(set(found.ladder)) == len(found.ladder)


def test_a_grid_that_wraps_gets_an_extent_that_takes_it_round():
    assert edges([KERNEL]).long[0] > MAX_BLOCKS * 256


LEVERS = [Lever(name, 8) for name in "abc"]


def test_sizes_go_to_all_levers():
    assert spread(LEVERS, (5, 6), 1) == {"a": 6, "b": 5, "c": 6}
    assert spread(LEVERS, (), 1) == {}
    assert one_large(LEVERS, 99, 1) == {"a": 2, "b": 99, "c": 4}


# ---- points --------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.booleans())
def test_a_point_is_what_its_input_stands_for(seed, parameters):
    draw = random.Random(seed)
    point = Point.drawn(draw, LEVERS, (1, 33, 7), parameters=parameters)
    assert Point.of(point.spec("search", 1)) == point
    for near in point.beside(LEVERS, (1, 33), parameters=parameters):
        made = near.spec("search", 1)
        named_transform(made.transform)
        again = Point.of(made)
        assert again.spec("search", 1) == made
        assert math.isclose(again.factor, near.factor, rel_tol=1e-3)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_inputs_that_differ_have_other_ids(one, other):
    made = [
        Point.drawn(random.Random(s), LEVERS, (1, 33, 7), parameters=True).spec("r", s % 3)
        for s in (one, other)
    ]
    assert (made[0] == made[1]) == (made[0].id == made[1].id)


def test_naming_twice_changes_nothing():
    made = spec("r0", 3, "ramp:x2", {"n": 3}, order="reverse", layout="strided")
    assert named(made) == made


# ---- settling ------------------------------------------------------------------------------------

MATMUL = problem("suite/matmul_square")
IMPRECISE = "sign-mixed:x3000"


def test_the_first_alternative_on_which_references_agree_is_taken():
    wish = Wish((spec("t", 1, IMPRECISE), spec("t", 1, "sign-mixed")), "sums")
    assert run_task(settled, MATMUL, [wish], 1) == ((spec("t", 1, "sign-mixed"), "sums"),)


def test_a_wish_that_is_not_checked_is_taken_as_it_is():
    wish = Wish((spec("t", 1, IMPRECISE),), "", checked=False)
    assert run_task(settled, MATMUL, [wish], 1) == ((spec("t", 1, IMPRECISE), ""),)


def test_a_wish_without_a_precise_alternative_is_passed_over():
    wishes = [Wish((spec("t", 1, IMPRECISE),), ""), Wish((spec("t", 1, "ramp"),), "")] * 2
    assert run_task(settled, MATMUL, wishes, 4) == ((spec("t", 1, "ramp"), ""),)
    each = run_task(settled_each, MATMUL, [spec("t", 1, IMPRECISE), spec("t", 1, "ramp")])
    assert each == (None, spec("t", 1, "ramp"))


def test_sizes_become_what_the_problem_accepts():
    wish = Wish((spec("t", 1, "ramp", {"size": 33}),), "")
    ((made, _),) = run_task(settled, MATMUL, [wish], 1)
    assert made == spec("t", 1, "ramp", {"size": 33})
    ((too_large, _),) = run_task(
        settled, MATMUL, [Wish((spec("t", 1, "ramp", {"size": 4097}),), "")], 1
    )
    assert too_large == spec("t", 1, "ramp")


# ---- covers --------------------------------------------------------------------------------------

KILLS = st.lists(st.frozensets(st.sampled_from("abcdef")), max_size=6)


def tried(number, killed, objection=""):
    made = InputSpec(f"i{number}", "generated", number)
    return Tried(made, {}, objection, killed=frozenset(killed), witnessed=frozenset(killed))


@given(KILLS, st.integers(0, 6))
def test_a_cover_kills_all_there_is_with_room_enough_and_takes_nothing_idle(kills, count):
    found = [tried(number, killed) for number, killed in enumerate(kills)]
    by_spec = {one.spec: one.killed for one in found}
    chosen = covering(found, count)
    assert len(chosen) <= count and len(set(chosen)) == len(chosen)
    killed = frozenset().union(*(by_spec[one] for one in chosen))
    everything = frozenset().union(*kills)
    if count >= len(kills):
        assert killed == everything
    for place, one in enumerate(chosen):
        before = frozenset().union(*(by_spec[c] for c in chosen[:place]))
        gain = len(by_spec[one] - before)
        assert gain == max(len(k - before) for k in kills) > 0


def test_an_input_that_may_not_judge_covers_nobody():
    assert covering([tried(0, "ab", "strays")], 3, witnessed) == ()
