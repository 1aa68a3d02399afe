import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.errors import ProblemError
from kernelassay.execute.sandbox import run_limited
from kernelassay.measure import TooLargeError, measure
from kernelassay.problem import load, read_problem
from kernelassay.shrink import shrink, shrink_limited
from kernelassay.shrink_search import SPREAD_SHARE, Budget
from kernelassay.shrink_sizes import aligned
from kernelassay.suite import suite_problems

HEAD = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        {init}
    def forward(self, x):
        return {forward}
def get_inputs():
    return [torch.rand({shape})]
def get_init_inputs():
    return [{arguments}]
"""


@pytest.fixture
def problem(tmp_path):
    def make(sizes, shape, forward, init="pass", arguments=""):
        path = tmp_path / "p.py"
        body = HEAD.format(init=init, forward=forward, shape=shape, arguments=arguments)
        path.write_text(sizes + body)
        return read_problem(path)

    return make


def sizes(report):
    return {name: after for name, _, after in report.scaled}


def test_a_huge_softmax_fits_the_budget_after_shrinking(problem):
    original = problem("batch_size = 4096\ndim = 393216\n", "batch_size, dim", "x.softmax(1)")
    report = shrink(original)
    assert report.reason == ""
    assert not report.official
    assert report.work <= Budget().work
    assert report.elements * 4 <= Budget().tensor_bytes
    assert sizes(report)["dim"] % 16 == 0
    assert dict(report.problem.shrunk) == sizes(report)
    assert report.problem.source == original.source
    assert load(report.problem).draw(1)[0].shape == tuple(sizes(report).values())


def test_a_problem_that_fits_stays_as_it_is():
    original = suite_problems()[0]
    report = shrink(original)
    assert report.scaled == ()
    assert report.official
    assert report.problem == original


def test_shrinking_is_deterministic(problem):
    original = problem("M = 2048\nK = 8192\n", "M, K", "x @ x.t()")
    assert shrink(original) == shrink(original)


def test_extents_that_differ_stay_different(problem):
    original = problem("M = 2048\nK = 8192\nN = 4096\n", "M, K", "x @ x.new_ones(K, N)")
    assert len(set(sizes(shrink(original)).values())) == 3


def test_odd_sizes_stay_odd(problem):
    report = shrink(problem("M = 8205\nN = 5921\n", "M, N", "x * 2"))
    assert all(size % 2 for size in sizes(report).values())


def test_a_normalisation_over_the_batch_keeps_eight_samples(problem):
    report = shrink(
        problem(
            "batch_size = 1024\nfeatures = 8192\n",
            "batch_size, features",
            "self.norm(x)",
            "self.norm = nn.BatchNorm1d(arguments[0])",
            "features",
        )
    )
    assert sizes(report)["batch_size"] >= 8


def test_groups_keep_eight_values_each(problem):
    report = shrink(
        problem(
            "batch_size = 1024\nfeatures = 8192\nnum_groups = 256\n",
            "batch_size, features",
            "self.norm(x)",
            "self.norm = nn.GroupNorm(*arguments)",
            "num_groups, features",
        )
    )
    assert sizes(report)["features"] // 256 >= 8
    assert "num_groups" not in sizes(report)


def test_sizes_that_are_tied_grow_together(problem):
    report = shrink(problem("batch_size = 4096\nN = 4096\n", "batch_size, N", "x @ x"))
    assert set(sizes(report).values()) == {64}


def test_a_wide_dilated_kernel_keeps_its_interior(problem):
    report = shrink(
        problem(
            "batch_size = 8\nchannels = 64\nheight = 512\nwidth = 512\n",
            "batch_size, channels, height, width",
            "self.conv(x)",
            "self.conv = nn.Conv2d(*arguments, (5, 9), 1, (2, 4), (2, 3))",
            "channels, channels",
        ),
        budget=Budget(work=4_000_000),
    )
    assert sizes(report)["height"] > 8
    assert sizes(report)["width"] > 24


def test_sizes_inside_functions_move_only_where_the_others_do_not_suffice(problem):
    report = shrink(problem("batch_size = 8\n", "batch_size, 3000, 4000", "x + 1"))
    assert {3000, 4000} <= {old for name, old, _ in report.scaled if name.startswith("@")}
    assert load(report.problem).draw(1)[0].numel() <= Budget().elements
    report = shrink(problem("M = 8192\n", "M, 64", "x + 1"))
    assert set(sizes(report)) == {"M"}


def test_what_stays_too_large_is_named(problem):
    report = shrink(problem("batch_size = 8\n", "batch_size, 15**6", "x + 1"))
    assert report.reason.startswith("it stays above the budget at every size tried")
    assert report.problem.shrunk == ()


def test_a_constant_output_is_noted(problem):
    report = shrink(problem("M = 8192\nN = 8192\n", "M, N", "x - x"))
    assert report.notes == ("the original's output is constant",)
    assert report.scaled


def test_an_output_that_only_shrinking_makes_constant_is_avoided(problem):
    # Below 64 columns nothing reaches the threshold.
    flat = problem(
        "M = 1024\nN = 1024\n", "M, N", "(x.sum(1) - 24).relu() + x[:, 0] * (x.shape[1] > 60)"
    )
    report = shrink(flat)
    assert report.notes == ()
    assert sizes(report)["N"] >= 64
    assert report.spread >= report.original.value * SPREAD_SHARE > 0


def test_a_problem_that_is_never_finite_is_refused(problem):
    report = shrink(problem("M = 8192\nN = 8192\n", "M, N", "(x - 2).log()"))
    assert report.reason.startswith("the output is not finite")


def test_a_small_problem_that_fails_is_not_repaired_by_other_sizes(problem):
    report = shrink(problem("M = 8\n", "M, 64", "x @ x"))
    assert (
        "the model fails on its inputs" in report.reason or "cannot be multiplied" in report.reason
    )
    assert report.problem.shrunk == ()


def test_an_import_error_is_raised(problem):
    broken = problem("M = 8192\n1 / 0\n", "M", "x")
    with pytest.raises(ProblemError, match="ZeroDivisionError"):
        shrink(broken)


def test_a_report_crosses_from_a_worker(problem):
    original = problem("M = 8192\nN = 8192\n", "M, N", "x.relu()")
    there = run_limited(shrink, (original,), seconds=60, memory_bytes=1 << 30, where=original.id)
    assert there == shrink(original)


def test_a_spread_does_not_depend_on_the_number_of_threads(problem):
    loaded = load(problem("M = 4096\nN = 4096\n", "M, N", "x.relu()"))
    before = torch.get_num_threads()
    spreads = set()
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            spreads.add(measure(loaded).spread)
    finally:
        torch.set_num_threads(before)
    assert len(spreads) == 1


def test_measured_work_is_at_least_the_flop_of_a_matrix_product():
    (matmul,) = [p for p in suite_problems() if p.id == "suite/matmul_rectangular"]
    found = measure(load(matmul))
    assert found.work >= 2 * 32 * 128 * 64
    assert [(e.kind, e.length) for e in found.extents] == [("reduced", 128)]
    assert measure(load(matmul), fake=True).extents == found.extents


def test_attention_costs_as_much_fused_as_written_out(problem):
    inputs = "M, 8, 16"
    written = problem("M = 96\n", inputs, "torch.softmax(x @ x.transpose(1, 2), -1) @ x")
    fused = problem("M = 96\n", inputs, "nn.functional.scaled_dot_product_attention(x, x, x)")
    product = 2 * 96 * 8 * 8 * 16
    for fake in (False, True):
        works = [measure(load(p), fake=fake).work for p in (written, fused)]
        assert all(2 * product <= work <= 3 * product for work in works)
    with pytest.raises(TooLargeError):
        measure(load(fused), element_limit=96 * 8 * 8 - 1)


def test_windows_report_their_interior():
    (pool,) = [p for p in suite_problems() if p.id == "suite/max_pool2d"]
    lengths = {(e.kind, e.length) for e in measure(load(pool)).extents}
    assert lengths == {("window", 8), ("window", 16), ("interior", 14), ("interior", 30)}


def test_a_tensor_past_the_limit_is_not_created(problem):
    huge = load(problem("M = 1 + 999999\nN = 1000000\n", "M, N", "x"))
    with pytest.raises(TooLargeError):
        measure(huge, element_limit=1000)
    assert measure(huge, fake=True).elements == 10**12


@given(original=st.integers(1, 10**6), target=st.integers(8, 4096))
def test_alignment_and_parity_survive(original, target):
    size = aligned(original, target)
    assert 1 <= size <= original
    assert size % 2 == original % 2 or original <= 8
    if original % 8 == 0:
        assert size % 8 == 0
    if original % 16 == 0 and target >= 16:
        assert size % 16 == 0
    assert aligned(size, 1 << 30) == size


def test_the_evaluation_limit_bounds_the_search(problem):
    budget = dataclasses.replace(Budget(), evaluations=3)
    report = shrink(problem("M = 8\n", "M, 15**6", "x + 1"), budget=budget)
    assert report.evaluations <= 2 * 3


NETWORK = """
import torch
from torch import nn
block_layers = [9, 3]
class Model(nn.Module):
    def __init__(self, depths):
        super().__init__()
        parts, width = [nn.Conv2d(3, 64, 3, padding=1)], 64
        for depth in depths:
            for _ in range(depth):
                parts += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            parts += [nn.Conv2d(width, 2 * width, 3, padding=1), nn.MaxPool2d(4, 4)]
            width = 2 * width
        self.body = nn.Sequential(*parts)
        self.head = nn.Linear(256 * 14 * 14, 1000)
    def forward(self, x):
        return self.head(self.body(x).flatten(1))
def get_inputs():
    return [torch.rand(10, 3, 224, 224)]
def get_init_inputs():
    return [block_layers]
"""


def test_a_network_gives_up_channels_pixels_and_repeated_layers_together(tmp_path):
    path = tmp_path / "network.py"
    path.write_text(NETWORK)
    report = shrink(read_problem(path))
    assert report.reason == ""
    changed = {(name, old): new for name, old, new in report.scaled}
    assert changed["block_layers[0]", 9] == changed["block_layers[1]", 3] == 2
    (side,) = {new for (_, old), new in changed.items() if old == 224}
    assert {new for (_, old), new in changed.items() if old == 14} == {side // 16}
    (channels,) = {new for (_, old), new in changed.items() if old == 64}
    assert 8 <= channels < 64
    model = load(report.problem).build_model()
    assert model.head.in_features == 4 * channels * (side // 16) ** 2


def test_a_product_past_the_limit_is_not_computed(problem):
    wide = load(problem("M = 4\nN = 300000\n", "N, M", "x @ x.t()"))
    with pytest.raises(TooLargeError, match="90000000000 elements"):
        measure(wide, element_limit=1 << 22)


def test_an_output_that_cannot_be_graded_is_a_reason_not_an_error(problem):
    report = shrink_limited(problem("M = 100000\nN = 1000\n", "M, N", "{'y': x}"))
    assert "returns a dict" in report.reason
