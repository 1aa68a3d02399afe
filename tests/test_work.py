"""Work is counted from shapes: FLOP by PyTorch's formulas, bytes once where a kernel moves them."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import conv_flop_count

from kernelassay.execute.bench import ProblemBench
from kernelassay.substrate.lowering import lower
from kernelassay.suite import suite_problems
from kernelassay.timing import Work
from kernelassay.trace import trace
from kernelassay.work import largest_live, node_work, peak_bytes, unit_work

FLOAT = 4


class Of(nn.Module):
    """A module that computes a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def traced_of(function, *shapes):
    return trace(Of(function), tuple(torch.zeros(shape) for shape in shapes))


def calls_of(traced):
    return list(unit_work(lower(traced), traced).calls.values())


def test_a_matrix_product_takes_two_flop_per_inner_step_and_moves_three_matrices():
    m, n, k = 3, 5, 7
    (product,) = calls_of(traced_of(torch.mm, (m, k), (k, n)))
    assert product.kernel == Work(2 * m * n * k, FLOAT * (m * k + k * n + m * n))


def test_attention_takes_the_flop_of_its_two_products():
    batch, heads, queries, keys, width = 2, 3, 5, 7, 8
    shapes = [(batch, heads, length, width) for length in (queries, keys, keys)]
    (attention,) = calls_of(traced_of(nn.functional.scaled_dot_product_attention, *shapes))
    assert attention.kernel.flops == 2 * 2 * batch * heads * queries * keys * width


@pytest.mark.parametrize(("groups", "stride"), [(1, 1), (2, 2)])
def test_a_convolution_takes_what_the_registry_says(groups, stride):
    def convolve(x, weight):
        return nn.functional.conv2d(x, weight, stride=stride, groups=groups)

    x, weight = (2, 4, 9, 9), (6, 4 // groups, 3, 3)
    out = convolve(torch.zeros(x), torch.zeros(weight)).shape
    (convolution,) = calls_of(traced_of(convolve, x, weight))
    assert convolution.kernel.flops == conv_flop_count(list(x), list(weight), list(out))


def test_a_pooling_window_counts_each_element_it_covers():
    traced = traced_of(lambda x: nn.functional.avg_pool2d(x, 3), (1, 1, 9, 9))
    (pooling,) = calls_of(traced)
    assert pooling.kernel == Work(3 * 3 * 9, FLOAT * (81 + 9))


def test_a_fused_chain_does_not_move_what_lies_between_its_steps():
    elements = 40
    (chain,) = calls_of(traced_of(lambda x, y: torch.tanh(torch.relu(x + y) * x), (40,), (40,)))
    assert chain.kernel == Work(4 * elements, 3 * FLOAT * elements)


def test_a_fused_chain_reads_an_operand_once_however_often_it_uses_it():
    (chain,) = calls_of(traced_of(lambda x: x * x + x, (10,)))
    assert chain.kernel.bytes == 2 * FLOAT * 10


def test_the_nodes_by_themselves_move_what_lies_between_them():
    traced = traced_of(lambda x: torch.tanh(torch.relu(x)), (10,))
    total = sum((node_work(node) for node in traced.nodes.values()), Work())
    assert total == Work(2 * 10, 2 * 2 * FLOAT * 10)


def test_views_cost_nothing():
    traced = traced_of(lambda x: torch.relu(x.reshape(5, 2).t()), (10,))
    views = [node for node in traced.nodes.values() if "relu" not in node.name]
    assert {node_work(node) for node in views} == {Work()}


def test_after_the_last_call_comes_the_grading_alone():
    traced = traced_of(lambda x, y: torch.relu(torch.mm(x, y)), (4, 4), (4, 4))
    product, relu = calls_of(traced)
    assert relu.after == Work(0, 4 * FLOAT * 16)
    assert product.after == relu.after + node_work(traced.nodes["relu"])


def test_a_chain_of_values_is_live_two_at_a_time():
    traced = traced_of(lambda x: torch.relu(torch.tanh(torch.exp(torch.sin(x)))), (100,))
    assert largest_live(traced) == 2 * FLOAT * 100


def test_a_value_that_a_view_of_it_is_read_from_later_stays_live():
    def forward(x):
        kept = torch.exp(x)
        seen = kept.view(10, 10)
        return torch.tanh(torch.sin(torch.cos(x))).view(10, 10) + seen

    assert largest_live(traced_of(forward, (100,))) == 3 * FLOAT * 100


def test_the_peak_is_during_the_double_forward_or_when_all_values_are_kept():
    vector = FLOAT * 100
    short = traced_of(lambda x: torch.relu(torch.tanh(x)), (100,))
    # The input, an output in single precision; the input and two live values in double.
    forward = vector + vector + 2 * (vector + 2 * vector)
    # The input and two values; an output in both precisions, and once more; a candidate's buffers.
    after = vector + 2 * vector + 4 * vector + 2 * vector
    assert peak_bytes(short) == max(forward, after)

    def deep(x):
        for _ in range(20):
            x = torch.tanh(x)
        return x

    assert peak_bytes(traced_of(deep, (100,))) == vector + 20 * vector + 4 * vector + 2 * vector


def test_sizes_beyond_any_memory_are_counted():
    with torch._subclasses.fake_tensor.FakeTensorMode():
        traced = trace(Of(torch.mm), (torch.zeros(1 << 20, 1 << 20), torch.zeros(1 << 20, 1 << 20)))
        (product,) = calls_of(traced)
        assert product.kernel.flops == 1 << 61
        assert peak_bytes(traced) > 1 << 43


@pytest.mark.parametrize("name", ["suite/conv2d", "suite/attention", "suite/layer_norm"])
def test_larger_sizes_of_a_problem_are_no_less_work(name):
    problem = next(p for p in suite_problems() if p.id == name)
    bench = ProblemBench(problem)
    own = unit_work(bench.calls, bench.traced)
    for lever in problem.sizes:
        if lever.name.startswith("batch"):
            larger = unit_work(bench.calls, bench._at(((lever.name, 2 * lever.value),)))
            assert larger.peak_bytes > own.peak_bytes
            for call, work in own.calls.items():
                assert larger.calls[call].kernel.flops >= work.kernel.flops > 0
                assert larger.calls[call].kernel.bytes > work.kernel.bytes
            break
    else:
        pytest.fail("the problem has no batch to enlarge")
