"""Mosaics: the slices of one input take turns in several kinds of values."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.errors import UsageError
from kernelassay.input_values import MOSAIC, named_transform, transformed
from kernelassay.problem import read_problem
from kernelassay.synthesis.generate.mosaic import Mosaic
from kernelassay.synthesis.generate.settling import mosaics
from kernelassay.synthesis.generate.target import SAME_SIGN, SIGN_MIXED, Kernel, Target, spec
from kernelassay.tasks import run_task
from tests.generate.sessions import problem

# Each tells itself from the others, whatever was drawn.
PARTS = ("official:x0:+1", "official:x0:+2", "official:x0:+3", "official:x0:+4")


@given(
    st.lists(st.sampled_from(PARTS), min_size=2, max_size=4),
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
)
def test_slices_of_the_first_long_axis_take_turns_in_the_parts(parts, shape):
    (made,) = transformed([torch.rand(shape)], named_transform(MOSAIC.join(parts)), 3)
    axis = next((d for d, extent in enumerate(shape[:-1]) if extent > 1), None)
    values = [float(part[-1]) for part in parts]
    if axis is None:
        assert (made == values[0]).all()
        return
    turns = min(len(parts), shape[axis])
    for place, piece in enumerate(made.unbind(axis)):
        assert (piece == values[place % turns]).all()


def test_other_tensors_have_the_first_part():
    drawn = [torch.rand(4, 3), torch.rand(3, 5), torch.arange(4)]
    first, second, whole = transformed(drawn, named_transform("official:x0:+1~official:x0:+2"), 1)
    assert first[:, 0].tolist() == [1.0, 2.0, 1.0, 2.0]
    assert (second == 1).all()
    assert torch.equal(whole, drawn[2])


def test_a_mosaic_is_the_same_bytes_each_time_and_changes_nothing_that_was_drawn():
    drawn = [torch.rand(6, 5)]
    before = drawn[0].clone()
    name = named_transform("sign-mixed:x2~edge-spikes-100~ties")
    assert torch.equal(transformed(drawn, name, 3)[0], transformed(drawn, name, 3)[0])
    assert torch.equal(drawn[0], before)


@pytest.mark.parametrize("name", ["official~", "~official", "official~nothing", "a~b"])
def test_a_mosaic_of_a_part_that_is_none_is_a_usage_error(name):
    with pytest.raises(UsageError, match="unknown transform"):
        named_transform(name)


# ---- which parts ---------------------------------------------------------------------------------

MATMUL = problem("suite/matmul_square")
IMPRECISE = "sign-mixed:x3e38"


def test_of_each_kind_the_first_is_added_that_leaves_the_whole_precise():
    kinds = (("sign-mixed",), (IMPRECISE, "ramp"), (IMPRECISE,), ("official",))
    (made,) = run_task(mosaics, MATMUL, [spec("m", 1, "official")], kinds, 3)
    assert made == spec("m", 1, "sign-mixed~ramp~official")


def test_a_mosaic_has_no_parts_that_no_slice_has_the_values_of(tmp_path):
    """A row of numbers is one slice: a name of several parts would tell of values not there."""
    text = "import torch\nN = {}\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
    text += "        return x * 2\ndef get_inputs():\n    return [torch.rand({})]\n"
    text += "def get_init_inputs():\n    return []\n"
    kinds = (("sign-mixed",), ("ramp",), ("official",), ("ties",))
    for shape, parts in (("N", 1), ("N, 7", 3)):
        path = tmp_path / f"p{parts}.py"
        path.write_text(text.format(3, shape))
        one = read_problem(path)
        (made,) = run_task(mosaics, one, [spec("m", 1, "official")], kinds, 1)
        assert len(made.transform.split(MOSAIC)) == parts


def target(objection):
    kernel = Kernel("k00", "matmul", ("aten.mm.default",), "int tile = 32;")
    ceilings = {SIGN_MIXED: 20.0, SAME_SIGN: 1e6}
    return Target(MATMUL, (kernel,), ceilings, 1e-2, False, objection)


def test_parts_that_correct_kernels_object_to_are_left_out_and_counted():
    def objection(made):
        return "strays" if "edge-spikes" in made.transform else ""

    proposal = Mosaic().propose(target(objection), 2, 1)
    assert len(proposal.specs) == 2
    assert proposal.failures == {"correct kernels objected": 2}  # one kind of each
    for made in proposal.specs:
        parts = made.transform.split(MOSAIC)
        assert len(parts) > 2 and not any("edge-spikes" in part for part in parts)


def test_where_correct_kernels_object_to_every_part_there_is_no_input():
    assert Mosaic().propose(target(lambda made: "strays"), 2, 1).specs == ()


def test_a_mosaic_is_blind_and_the_same_each_time():
    assert Mosaic.blind
    first, again = (Mosaic().propose(target(lambda made: ""), 3, 1) for _ in range(2))
    assert first == again
    assert len({made.id for made in first.specs}) == 3
