from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from kernelassay.compile import parse_launcher
from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, Call, Launch
from kernelassay.substrate import bind, lower
from kernelassay.substrate.lowering import MAX_BLOCKS, is_free
from kernelassay.trace import Traced, trace

UNARY = (torch.tanh, torch.relu, torch.sigmoid, lambda t: t * 2.0, lambda t: t.sum(0, keepdim=True))
BINARY = (torch.add, torch.mul, torch.maximum)


class Program(nn.Module):
    """A random straight-line program: each step is an operator and two earlier values."""

    def __init__(self, steps: list[tuple[int, int, int]]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for which, left, right in self.steps:
            a, b = values[left % len(values)], values[right % len(values)]
            if which < len(UNARY):
                values.append(UNARY[which](a))
            else:
                values.append(BINARY[which - len(UNARY)](a, b))
        return values[-1]


steps = st.tuples(
    st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 30), st.integers(0, 30)
)


def compute_nodes(traced: Traced) -> set[str]:
    return {name for name, node in traced.nodes.items() if not is_free(node)}


def lowered(function: object, *inputs: Tensor) -> tuple[Traced, tuple[Call, ...]]:
    class Wrapped(nn.Module):
        def forward(self, *tensors: Tensor) -> Tensor:
            return function(*tensors)  # type: ignore[operator]

    traced = trace(Wrapped(), inputs)
    return traced, lower(traced)


# An example costs a fifth of a second, so a failing one is not shrunk.
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.lists(steps, min_size=1, max_size=12))
def test_each_compute_node_is_in_exactly_one_call_and_calls_never_wait_on_later_ones(
    program: list[tuple[int, int, int]],
) -> None:
    traced = trace(Program(program), (torch.rand(3, 4),))
    calls = lower(traced)
    covered = list(itertools.chain.from_iterable(call.nodes for call in calls))
    assert len(covered) == len(set(covered))
    assert set(covered) == compute_nodes(traced)
    computed: set[str] = set()
    for call in calls:
        needed = {node for _, node in call.operands} & compute_nodes(traced)
        assert needed <= computed
        computed |= {node for _, node in call.outputs}


def test_a_chain_of_elementwise_operators_is_one_kernel() -> None:
    _, calls = lowered(lambda x: torch.tanh(F.relu(x) * 2 + 1), torch.rand(3, 4))
    assert [call.id for call in calls] == ["k00_pointwise"]
    assert len(calls[0].nodes) == 4


def test_a_value_with_two_users_in_one_group_joins_it() -> None:
    _, calls = lowered(lambda x: (y := torch.exp(x)) * torch.tanh(y), torch.rand(3))
    assert [len(call.nodes) for call in calls] == [3]


def test_a_value_that_a_reduction_also_reads_is_a_kernel_of_its_own() -> None:
    _, calls = lowered(lambda x: (y := torch.exp(x)) / y.sum(1, keepdim=True), torch.rand(3, 4))
    assert [call.template for call in calls] == ["pointwise", "sum", "pointwise"]


def test_an_output_is_never_hidden_inside_a_group() -> None:
    _, calls = lowered(lambda x: (y := torch.exp(x), y + 1), torch.rand(3))  # type: ignore[arg-type]
    assert [call.outputs[0][1] for call in calls] == ["exp", "add"]


def test_a_smaller_operand_is_not_recomputed_under_broadcast() -> None:
    _, calls = lowered(lambda x, b: x + torch.tanh(b), torch.rand(3, 4), torch.rand(4))
    assert [call.nodes for call in calls] == [("tanh",), ("add",)]


def test_every_unsupported_operator_is_named_at_once() -> None:
    with pytest.raises(UnsupportedError, match=r"aten\.sort\.default; aten\.topk\.default"):
        lowered(lambda x: torch.sort(x)[0] + torch.topk(x, 5)[0], torch.rand(5))


def test_a_used_index_of_a_maximum_or_a_norm_statistic_is_refused() -> None:
    def statistics(x: Tensor) -> Tensor:
        return torch.native_layer_norm(x, (4,), None, None, 1e-5)[1]

    with pytest.raises(UnsupportedError, match="result 1 is used"):
        lowered(statistics, torch.rand(3, 4))


def test_scalars_follow_the_shape_and_the_sources_stay() -> None:
    def function(x: Tensor, bias: Tensor) -> Tensor:
        return torch.tanh(x + bias[:, None])

    traced, (call,) = lowered(function, torch.rand(2, 3, 4), torch.rand(3))
    other, (variant,) = lowered(function, torch.rand(5, 3, 7), torch.rand(3))
    assert bind(call, traced) == {"n": 24, "size1": 3, "size2": 4, "max_blocks": MAX_BLOCKS}
    assert bind(call, other) == {"n": 105, "size1": 3, "size2": 7, "max_blocks": MAX_BLOCKS}
    assert variant.sources == call.sources


def test_a_few_thousand_elements_make_a_grid_stride_loop_iterate() -> None:
    traced, (call,) = lowered(torch.tanh, torch.rand(8, 1024))
    plan = parse_launcher(call.sources[OPTIMISED]).plan(bind(call, traced))
    (launch,) = plan.steps
    assert isinstance(launch, Launch)
    assert launch.grid == (MAX_BLOCKS, 1, 1)
    assert launch.grid[0] * launch.block[0] * 4 < 8 * 1024  # float4


def test_a_graph_of_another_structure_cannot_be_bound() -> None:
    _, (call,) = lowered(torch.tanh, torch.rand(3))
    other, _ = lowered(torch.exp, torch.rand(3))
    with pytest.raises(UnsupportedError, match="another structure"):
        bind(call, other)


def test_shapes_that_broadcast_in_another_way_cannot_be_bound() -> None:
    _, (call,) = lowered(torch.add, torch.rand(3, 4), torch.rand(3, 4))
    other, _ = lowered(torch.add, torch.rand(3, 4), torch.rand(1, 4))
    with pytest.raises(UnsupportedError, match="broadcasts"):
        bind(call, other)
