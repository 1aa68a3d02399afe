import json
import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelassay import plan
from kernelassay.check.smallest import SIMPLE
from kernelassay.errors import ProblemError, UsageError
from kernelassay.input_shapes import GROWTH, LADDER, SMALL_VOLUME, shape_overrides
from kernelassay.input_trials import settle, settled_battery
from kernelassay.input_values import TRANSFORMS, transformed
from kernelassay.inputs import (
    BRIEF_BATTERY,
    FULL_BATTERY,
    MOST_SHAPES,
    PROTOCOL,
    QUICK_BATTERY,
    TARGETED,
    InputSpec,
    battery,
    digest,
    draw,
    has_parameters,
    materialise,
    official_inputs,
    parameters,
    redrawn_state,
    verified_inputs,
)
from kernelassay.measure import measure
from kernelassay.plan import GateOptions
from kernelassay.problem import load, read_problem
from kernelassay.protocol_inputs import KINDS, drawn_inputs
from kernelassay.references import disagreement
from kernelassay.suite import suite_problems

PROBLEMS = {problem.id: problem for problem in suite_problems()}
each_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
PLAIN = {name for name, transform in TRANSFORMS.items() if transform.plain}
each_transform = pytest.mark.parametrize("name", sorted(set(TRANSFORMS) - {"official"} - PLAIN))

PRINT_DIGESTS = """
from kernelassay.inputs import battery, digest, materialise
from kernelassay.problem import load, read_problem
from kernelassay.suite import suite_problems
problem, = [p for p in suite_problems() if p.id == "suite/layer_norm"]
for spec in battery(problem):
    inputs, state = materialise(load(problem, dict(spec.overrides)), spec)
    print(digest([*inputs, *state.values()]))
"""


def make(problem, spec):
    return materialise(load(problem, dict(spec.overrides)), spec)


@each_problem
def test_the_battery_is_bounded_distinct_and_the_same_every_time(problem):
    full, quick = battery(problem), battery(problem, size="quick")
    assert full == battery(problem)
    assert full[:5] == quick[:5] == official_inputs()
    assert 24 <= len(full) <= FULL_BATTERY
    assert len(quick) <= QUICK_BATTERY
    assert len({spec.id for spec in full}) == len(full)
    assert {spec.group for spec in full} >= {"official", "targeted", "shape", "layout"}
    assert ("parameters" in {spec.group for spec in full}) == has_parameters(problem)


@each_problem
def test_only_inputs_of_other_sizes_change_the_conditions_a_kernel_runs_under(problem):
    full = battery(problem)
    usual = {(spec.order, spec.surroundings) for spec in full if spec.group != "shape"}
    assert usual == {("forward", "finite")}
    shapes = [spec for spec in full if spec.group == "shape"]
    assert {spec.surroundings for spec in shapes} == {"nan", "packed"}
    assert {spec.order for spec in shapes} == {"forward", "reverse", "seeded:1"}


@each_problem
def test_parameters_are_foreseen_from_the_source(problem):
    assert has_parameters(problem) == any(True for _ in load(problem).build_model().parameters())


@pytest.mark.parametrize("name", ["layer_norm", "kl_div_loss", "cumsum_masked", "conv2d"])
def test_inputs_are_made_again_byte_for_byte(name):
    problem = PROBLEMS[f"suite/{name}"]
    seen = {}
    for spec in battery(problem):
        inputs, state = make(problem, spec)
        torch.manual_seed(999)
        again, state_again = make(problem, spec)
        assert digest(inputs) == digest(again)
        assert digest(list(state.values())) == digest(list(state_again.values()))
        seen.setdefault(digest([*inputs, *state.values()]), []).append((spec.id, spec.layout))
    # Only the strided copy of an input repeats its bytes.
    repeated = [ids for ids in seen.values() if len(ids) > 1]
    assert repeated == [[("sign-mixed-s1", "contiguous"), ("strided/sign-mixed", "strided")]]


def test_digests_are_the_same_in_another_process():
    problem = PROBLEMS["suite/layer_norm"]
    here = []
    for spec in battery(problem):
        inputs, state = make(problem, spec)
        here.append(digest([*inputs, *state.values()]))
    done = subprocess.run(
        [sys.executable, "-c", PRINT_DIGESTS], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == here


def test_the_official_inputs_are_the_problems_own_draws():
    loaded = load(PROBLEMS["suite/softmax_rows"])
    for spec in official_inputs():
        inputs, _ = materialise(loaded, spec)
        assert torch.equal(inputs[0], loaded.draw(spec.seed)[0])


@each_transform
def test_every_transform_changes_values_and_keeps_shapes(name):
    drawn = [torch.rand(6, 33), torch.rand(6, 33), torch.rand(5), torch.rand(1, 4)]
    kept = [x.clone() for x in drawn]
    new = transformed(drawn, TRANSFORMS[name], seed=3)
    for before, after, original in zip(drawn, new, kept, strict=True):
        assert torch.equal(before, original)
        assert after.shape == before.shape
        assert after.dtype == before.dtype
        assert torch.isfinite(after).all()
    assert digest(new[:2]) != digest(drawn[:2])


@each_transform
@settings(max_examples=15, deadline=None)
@given(shape=st.lists(st.integers(1, 5), max_size=4), half=st.booleans())
def test_transforms_take_any_shape(name, shape, half):
    drawn = [torch.rand(shape).to(torch.float16 if half else torch.float32)]
    (new,) = transformed(drawn, TRANSFORMS[name], seed=3)
    assert new.shape == drawn[0].shape
    assert new.dtype == drawn[0].dtype


def one(name, x):
    return transformed([x], TRANSFORMS[name], seed=3)[0]


def test_targeted_values_are_what_their_names_say():
    x = torch.rand(8, 64)
    assert one("ramp", x).unique().numel() == x.numel()
    assert one("opposed", x).sum(dim=1).abs().max() < 1e-4
    assert (one("all-negative", x) < 0).all()
    assert one("ties", x).unique().numel() == 7
    assert (one("sorted-descending", x).diff(dim=1) <= 0).all()
    assert one("constant-rows", x).std(dim=1).max() == 0
    assert one("huge-3e5", x).abs().min() > torch.finfo(torch.float16).max
    mixed = one("sign-mixed", torch.rand(100, 100))
    assert abs(mixed.mean()) < 0.05
    assert abs(mixed.std() - 1) < 0.05
    first, second = transformed([x, x.clone()], TRANSFORMS["opposed"], seed=3)
    assert torch.equal(first, -second)
    zero = (one("zero-rows", x) == 0).all(dim=1)
    assert zero.tolist() == [index % 3 == 1 for index in range(8)]
    assert torch.equal(one("offset-1e3", x), x + 1000)
    near, other = transformed([x, x.clone()], TRANSFORMS["small-spread"], seed=3)
    assert 0.89 < (near - other).abs().min() < (near - other).abs().max() < 1.01
    assert 8e-6 < one("small-spread", torch.rand(100, 100)).var() < 1e-5


def test_edge_spikes_stand_on_the_ends_of_every_long_axis_and_of_the_last():
    values = one("edge-spikes-100", torch.rand(2, 8, 9)).abs()
    inner = values[:, 1:-1, 1:-1]
    assert inner.max() < 1
    assert (values >= 100).sum() == values.numel() - inner.numel()
    assert (one("edge-spikes-100", torch.rand(3, 2)).abs() >= 100).all()


def test_thresholds_hold_every_knee_exactly_and_from_both_sides():
    values = one("thresholds", torch.rand(16, 16))
    for knee in (0.0, 0.5, 1.0, 3.0, 6.0, 20.0):
        for side in (knee, -knee):
            near = values[(values - side).abs() < 0.11] - side
            assert (near == 0).any()
            assert (near > 0).any()
            assert (near < 0).any()
    first, second = transformed([torch.rand(64, 64)] * 2, TRANSFORMS["thresholds"], seed=3)
    assert ((first - second).abs() == 1).any()


def test_saturating_values_overflow_exp_with_either_sign_alone_and_mixed():
    low, high, mixed = one("saturating", torch.rand(9, 64)).split(3)
    assert (low.exp() == 0).all()
    assert (high > 0).all()
    assert (mixed < 0).any()
    assert torch.isinf(high.exp()).any()
    assert high.min() >= 20


def test_ties_put_the_first_of_the_largest_early_and_late():
    first = one("ties", torch.rand(200, 64)).argmax(dim=1)
    assert first.min() < 4
    assert first.max() > 40
    assert ((one("ties", torch.rand(200, 64)) == 1.5).sum(dim=1) == 2).sum() > 150


@each_transform
def test_labels_masks_and_scalars_stay_valid(name):
    labels = torch.randint(0, 10, (8,))
    mask = torch.rand(4, 4) < 0.5
    signs = torch.randint(0, 2, (8,)).float() * 2 - 1
    drawn = [torch.rand(8, 10), labels, mask, signs, 3.5]
    new = transformed(drawn, TRANSFORMS[name], seed=3)
    assert torch.equal(new[1], labels)
    assert torch.equal(new[2], mask)
    assert torch.equal(new[3], signs)
    assert new[4] == 3.5


@each_transform
def test_distributions_stay_distributions(name):
    drawn = torch.rand(8, 50).softmax(dim=1)
    new = one(name, drawn)
    assert (new > 0).all()
    assert torch.allclose(new.sum(dim=1), torch.ones(8), atol=1e-5)
    assert not torch.equal(new, drawn)


@each_transform
def test_matrix_structure_is_kept(name):
    x = torch.rand(9, 9)
    assert not one(name, x.triu()).tril(-1).any()
    assert not one(name, x.tril()).triu(1).any()
    symmetric = one(name, x + x.t())
    assert torch.equal(symmetric, symmetric.t())


def test_every_targeted_input_names_a_transform():
    targeted = {name for names in TARGETED for name in names}
    asked = {spec.transform for kind in KINDS.values() for spec in kind.specs}
    others = set(SIMPLE) | {"same-sign", "tail-reversed"}
    assert targeted | PLAIN | asked | others == set(TRANSFORMS)


def test_the_verified_inputs_are_the_first_official_one_times_a_factor():
    loaded = load(PROBLEMS["suite/softmax_rows"])
    drawn = loaded.draw(official_inputs()[0].seed)[0]
    factors = {"verified-x3": 3.0, "verified-x0.01": 0.01, "verified-x-1": -1.0}
    specs = verified_inputs()
    assert [spec.id for spec in specs] == list(factors)
    assert [spec.transform for spec in specs] == list(factors)
    for spec in specs:
        (values,), state = materialise(loaded, spec)
        assert torch.equal(values, drawn * factors[spec.id])
        assert spec.group == "verified"
        for name, value in loaded.build_model(42).state_dict().items():
            assert torch.equal(state[name], value)


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_plain_transforms_change_every_float_and_nothing_else(name):
    labels, mask = torch.randint(0, 10, (8,)), torch.rand(4, 4) < 0.5
    floats = [
        torch.rand(3, 4).half(),
        torch.rand(3, 4).double(),
        torch.ones(6),  # what looks like labels
        torch.rand(8, 50).softmax(dim=1),
        torch.tensor(2.5),
        torch.empty(0, 3),
    ]
    drawn = [*floats, labels, mask, 3.5, 7]
    new = transformed(drawn, TRANSFORMS[name], seed=3)
    for before, after in zip(floats, new, strict=False):
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        if name.startswith("verified-x"):
            assert torch.equal(after, before * float(name.removeprefix("verified-x")))
        else:
            assert before.numel() == 0 or not torch.equal(after, before)
    assert torch.equal(new[6], labels)
    assert torch.equal(new[7], mask)
    assert new[8:] == [3.5, 7]


def test_plain_transforms_stay_on_the_device_of_a_tensor():
    (new,) = transformed([torch.empty(2, 3, device="meta")], TRANSFORMS["verified-x3"], seed=3)
    assert new.device.type == "meta"


@each_problem
def test_without_a_judge_the_most_extreme_of_each_choice_is_taken(problem):
    names = [spec.transform for spec in battery(problem) if spec.group == "targeted"]
    assert names == [choice[0] for choice in TARGETED]


def test_magnitudes_fall_to_what_the_references_bear():
    def precise(spec):
        return spec.transform not in ("huge-3e5", "large-1e4", "offset-1e3")

    specs = battery(PROBLEMS["suite/layer_norm"], precise=precise)
    assert {"large-1e2-s1", "offset-30-s1"} <= {spec.id for spec in specs}
    assert len({spec.id for spec in specs}) == len(specs)
    assert all(map(precise, specs))


@pytest.mark.parametrize(
    "name", ["layer_norm", "softmax_rows", "argmin_last", "matmul_rectangular"]
)
def test_settled_inputs_are_precise_and_tiny_shapes_among_them(name):
    problem = PROBLEMS[f"suite/{name}"]
    few = settled_battery(problem, "brief")
    assert len(few) == BRIEF_BATTERY
    assert {spec.group for spec in few} >= {"official", "targeted", "shape"}
    for size, count in (("quick", QUICK_BATTERY), ("full", FULL_BATTERY)):
        specs = settled_battery(problem, size)
        others = sum(spec.group != "shape" for spec in specs)
        assert len(specs) == min(count, others + MOST_SHAPES)
        sizes = [lever.name for lever in problem.sizes]
        tried = [dict(spec.overrides) for spec in specs]
        assert dict.fromkeys(sizes, 1) in tried
        assert {name: 3 + 2 * j for j, name in enumerate(sizes)} in tried
    for spec in specs:
        loaded = load(problem, dict(spec.overrides))
        inputs, state = materialise(loaded, spec)
        assert disagreement(loaded, state, inputs) < 5e-3, spec.id


def test_strided_inputs_have_the_values_but_not_the_layout():
    for name in ("suite/softmax_rows", "suite/matrix_vector"):
        spec = InputSpec("a", "layout", 1, "sign-mixed", layout="strided")
        inputs, _ = make(PROBLEMS[name], spec)
        plain, _ = make(PROBLEMS[name], InputSpec("b", "targeted", 1, "sign-mixed"))
        assert digest(inputs) == digest(plain)
        assert not any(x.is_contiguous() for x in inputs)


def test_redrawn_parameters_move_the_constant_ones_and_leave_buffers():
    loaded = load(PROBLEMS["suite/batch_norm"])
    official = loaded.build_model().state_dict()
    redrawn = redrawn_state(loaded, 1001)
    assert (official["norm.weight"] == 1).all()
    assert redrawn["norm.weight"].std() > 0.2
    assert redrawn["norm.bias"].std() > 0.2
    assert torch.equal(redrawn["norm.running_var"], official["norm.running_var"])
    large = redrawn_state(loaded, 1001, 30)
    assert torch.equal(large["norm.weight"], redrawn["norm.weight"] * 30)
    other = redrawn_state(loaded, 1002)
    assert not torch.equal(other["norm.weight"], redrawn["norm.weight"])


def test_shapes_need_the_problem_loaded_with_their_sizes():
    problem = PROBLEMS["suite/softmax_rows"]
    spec = next(spec for spec in battery(problem) if spec.group == "shape")
    with pytest.raises(UsageError, match="load the problem with the input's overrides"):
        materialise(load(problem), spec)
    inputs, _ = make(problem, spec)
    assert inputs[0].shape == tuple(dict(spec.overrides).values())


@pytest.mark.parametrize("field", ["transform", "layout", "parameters"])
def test_unknown_names_are_refused(field):
    spec = InputSpec(**{"id": "x", "group": "targeted", "seed": 1, field: "strange"})
    with pytest.raises(UsageError, match="strange"):
        materialise(load(PROBLEMS["suite/relu"]), spec)


@each_problem
def test_most_untried_shapes_fit_every_problem_of_the_suite(problem):
    volume = math.prod(lever.value for lever in problem.sizes)
    refused = 0
    for overrides in shape_overrides(problem, 8):
        now = {**{lever.name: lever.value for lever in problem.sizes}, **dict(overrides)}
        assert math.prod(now.values()) <= max(GROWTH * volume, SMALL_VOLUME)
        try:
            assert measure(load(problem, dict(overrides)), fake=True).elements > 0
        except ProblemError:
            refused += 1
    assert refused <= 1


def test_each_size_of_a_plain_problem_meets_many_rungs():
    for name in ("rows", "inner", "columns"):
        met = {dict(o).get(name) for o in shape_overrides(PROBLEMS["suite/matmul_rectangular"], 10)}
        assert len(met & set(LADDER)) >= 6


def test_channels_move_in_multiples_of_their_groups():
    for overrides in shape_overrides(PROBLEMS["suite/group_norm"], 8):
        assert dict(overrides).get("channels", 8) % 8 == 0


def test_refused_sizes_are_put_back():
    problem = PROBLEMS["suite/matmul_rectangular"]

    def trial(moved):
        return "refused" if "inner" in moved else "fits"

    found = shape_overrides(problem, 6, trial)
    assert len(found) == 6
    assert all(set(dict(overrides)) == {"rows", "columns"} for overrides in found)


def test_a_shape_whose_output_is_empty_is_passed_over(tmp_path):
    path = tmp_path / "differences.py"
    path.write_text(
        "import torch\nfrom torch import nn\nrows = 4\ncols = 64\n"
        "class Model(nn.Module):\n"
        "    def forward(self, x):\n        return torch.relu(x[:, 1:] - x[:, :-1])\n"
        "def get_inputs():\n    return [torch.rand(rows, cols)]\n"
        "def get_init_inputs():\n    return []\n"
    )
    shapes = [s for s in settled_battery(read_problem(path)) if s.group == "shape"]
    assert len(shapes) >= 5
    assert all(dict(spec.overrides).get("cols", 64) > 1 for spec in shapes)


def test_a_size_that_a_constant_follows_from_does_not_move():
    shapes = [s for s in settled_battery(PROBLEMS["suite/kl_div_loss"]) if s.group == "shape"]
    moved = [dict(spec.overrides) for spec in shapes]
    assert len(moved) >= 5
    assert all(set(sizes) == {"features"} for sizes in moved)  # the mean divides by the batch


def test_a_size_that_only_sounds_tied_to_groups_takes_every_rung():
    problem = PROBLEMS["suite/gemm_groupnorm_hardtanh"]
    settled = [dict(s.overrides) for s in settled_battery(problem) if s.group == "shape"]
    assert {sizes["in_features"] % 8 for sizes in settled if "in_features" in sizes} - {0}
    assert {sizes["out_features"] % 8 for sizes in settled if "out_features" in sizes} == {0}


@pytest.mark.parametrize("name", ["matmul_square", "matmul_tall_skinny", "conv2d_relu_bias"])
def test_settled_shapes_run_within_four_times_the_cost(name):
    problem = PROBLEMS[f"suite/{name}"]
    own = measure(load(problem))
    shapes = [spec for spec in settled_battery(problem) if spec.group == "shape"]
    assert len(shapes) >= 5
    for spec in shapes:
        found = measure(load(problem, dict(spec.overrides)))
        assert found.finite
        assert found.work <= max(GROWTH * own.work, 4_000_000)
        assert found.elements <= max(GROWTH * own.elements, SMALL_VOLUME)


@given(
    overrides=st.dictionaries(st.text(min_size=1), st.integers(1, 9)),
    seed=st.integers(0, 2**32),
    transform=st.sampled_from(sorted(TRANSFORMS)),
)
def test_specs_survive_json(overrides, seed, transform):
    spec = InputSpec("x", "shape", seed, transform, tuple(overrides.items()))
    assert InputSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_a_spec_with_a_missing_or_unknown_field_is_refused():
    data = InputSpec("x", "shape", 1).to_json()
    with pytest.raises(UsageError, match="colour"):
        InputSpec.from_json({**data, "colour": 1})
    del data["seed"]
    with pytest.raises(UsageError, match="seed"):
        InputSpec.from_json(data)


def test_digests_see_values_shapes_and_dtypes():
    x = torch.arange(6.0)
    distinct = [[x], [x.reshape(2, 3)], [x.double()], [x, x], [x + 1], [x, 2], [x > 2]]
    assert len({digest(inputs) for inputs in distinct}) == len(distinct)
    assert digest([x.reshape(2, 3).t()]) == digest([x.reshape(2, 3).t().contiguous()])
    assert digest([torch.tensor(0.0)]) != digest([torch.tensor(-0.0)])


# -- what a run draws for a protocol ----------------------------------------------------------


def drawn_for(name, kind, verdict="fits"):
    return drawn_inputs(PROBLEMS[name], [kind], lambda moved: verdict)


def test_a_log_uniform_fuzz_covers_six_decades_evenly_with_either_sign():
    (new,) = transformed([torch.zeros(60_000)], TRANSFORMS["log-uniform"], seed=42)
    assert 1e-3 <= float(new.abs().min()) < 1.01e-3
    assert 0.99e3 < float(new.abs().max()) <= 1e3 * (1 + 1e-6)
    decades = torch.histc(new.abs().log10(), bins=6, min=-3, max=3) / len(new)
    assert bool(((decades - 1 / 6).abs() < 0.01).all())
    assert abs(float((new > 0).float().mean()) - 0.5) < 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_the_inputs_of_a_kind_have_the_same_ids_for_every_problem_and_are_made_again(kind):
    for name in ("suite/softmax_rows", "suite/matmul_square"):
        specs = drawn_for(name, kind)
        assert tuple(spec.id for spec in specs) == KINDS[kind].ids
        assert specs == drawn_for(name, kind)
        spec = specs[-1]
        loaded = load(PROBLEMS[name], dict(spec.overrides))
        assert digest(draw(loaded, spec)) == digest(draw(loaded, spec))


def test_inputs_of_one_kind_differ_from_one_another():
    specs = drawn_for("suite/softmax_rows", "log-uniform")
    loaded = load(PROBLEMS["suite/softmax_rows"])
    assert len({digest(draw(loaded, spec)) for spec in specs}) == len(specs)


def test_the_schema_fuzz_draws_sizes_from_the_published_lists():
    sizes = [dict(spec.overrides) for spec in drawn_for("suite/matmul_square", "schema")]
    moved = {size for own in sizes for size in own.values()}
    assert moved
    assert len({tuple(own.items()) for own in sizes}) > 1
    lists = (1, 2, 7, 8, 128, 3, 16, 127, 256, 15, 64, 1025)
    assert moved <= set(lists)


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.sizes])
def test_a_problem_whose_sizes_are_not_free_keeps_them(kind):
    assert {spec.overrides for spec in drawn_for("suite/softmax_rows", kind, "refused")} == {()}
    levers = {lever.name for lever in PROBLEMS["suite/softmax_rows"].sizes}
    own = drawn_inputs(PROBLEMS["suite/softmax_rows"], [kind], lambda moved: "fits", levers)
    assert {spec.overrides for spec in own} == {()}


def test_robust_kbench_builds_the_model_anew_in_each_trial():
    loaded = load(PROBLEMS["suite/linear_bias_relu"])
    states = [parameters(loaded, spec) for spec in drawn_for("suite/linear_bias_relu", "robust")]
    weights = {digest(list(state.values())) for state in states}
    assert len(weights) == len(states)
    built = loaded.build_model(43).state_dict()
    assert all(torch.equal(built[name], value) for name, value in states[1].items())


def test_no_battery_has_an_input_of_a_protocol_unless_asked():
    problem = PROBLEMS["suite/softmax_rows"]
    plain = settle(problem, "brief")
    asked = settle(problem, "brief", kinds=tuple(KINDS))
    assert not {spec.group for spec in plain.specs} & {PROTOCOL, "verified"}
    assert asked.specs[: len(plain.specs)] == plain.specs
    assert {spec.id for spec in asked.specs[len(plain.specs) :]} == {
        name for kind in KINDS.values() for name in kind.ids
    }
    assert (asked.moves, asked.frozen) == (plain.moves, plain.frozen)


def test_a_limit_of_inputs_is_one_of_the_battery_and_takes_none_that_a_protocol_asks_for():
    kinds = ("verified", "robust")
    problem = PROBLEMS["suite/linear_bias_relu"]
    specs = settle(problem, "brief", kinds=kinds).specs
    chosen = plan._chosen(problem, specs, GateOptions(max_inputs=2, draws=kinds))
    asked = [name for kind in kinds for name in KINDS[kind].ids]
    assert [spec.id for spec in chosen] == ["official-0", "official-1", *asked]
    assert plan._chosen(problem, specs, GateOptions(draws=kinds)) == list(specs)
