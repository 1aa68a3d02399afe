from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from kernelassay.errors import ProblemError, UnsupportedError
from kernelassay.kernel import TensorMeta
from kernelassay.randomness import MASK
from kernelassay.trace import hold_as_buffers, meta, state_of, trace


class ConvNorm(nn.Module):
    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor, factor: float) -> Tensor:
        return F.mish(self.norm(self.conv(x))) * factor


def image(batch: int = 2, side: int = 9) -> Tensor:
    return torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0))


def targets(module: nn.Module, *inputs: object) -> list[str]:
    nodes = trace(module, inputs).nodes.values()
    return [str(node.target) for node in nodes if node.op == "call_function"]


def test_a_run_equals_the_module_bit_for_bit() -> None:
    module = ConvNorm()
    traced = trace(module, (image(), 2.0))
    values = traced.run(state_of(module), (image(), 2.0))
    assert torch.equal(values[traced.outputs[0]], module(image(), 2.0))


def test_a_run_returns_every_value_of_the_graph() -> None:
    module = ConvNorm()
    values = trace(module, (image(), 2.0)).run(state_of(module), (image(), 2.0))
    assert {"x", "p_conv_weight", "convolution", "mish", "mul"} <= set(values)


def test_a_graph_can_be_fed_other_parameters() -> None:
    traced = trace(ConvNorm(), (image(), 2.0))
    other = ConvNorm()
    values = traced.run(state_of(other), (image(), 2.0))
    assert torch.equal(values[traced.outputs[0]], other(image(), 2.0))


def test_tracing_leaves_parameters_and_statistics_alone() -> None:
    module = ConvNorm()
    before = {name: tensor.clone() for name, tensor in state_of(module).items()}
    trace(module, (image(), 2.0))
    assert all(torch.equal(tensor, before[name]) for name, tensor in state_of(module).items())
    assert module.training


@pytest.mark.parametrize(("batch", "side"), [(1, 9), (3, 12), (7, 33)])
def test_the_signature_is_the_same_at_other_shapes(batch: int, side: int) -> None:
    module = ConvNorm()
    reference = trace(module, (image(), 2.0))
    assert trace(module, (image(batch, side), 2.0)).signature() == reference.signature()


def test_the_signature_is_the_same_for_another_number_of_channels() -> None:
    inputs = (image(), 2.0)
    assert trace(ConvNorm(5), inputs).signature() == trace(ConvNorm(4), inputs).signature()


def test_the_signature_tells_operators_apart() -> None:
    x = (image(),)
    assert trace(nn.ReLU(), x).signature() != trace(nn.Tanh(), x).signature()


def test_running_statistics_are_dropped() -> None:
    traced = trace(ConvNorm(), (image(), 2.0))
    assert traced.outputs == ("mul",)
    assert "b_norm_num_batches_tracked" not in traced.nodes
    getitems = [name for name in traced.nodes if name.startswith("getitem")]
    assert len(getitems) == 1


def test_composites_that_are_only_close_when_decomposed_stay_whole() -> None:
    assert targets(nn.Softplus(), image()) == ["aten.softplus.default"]
    assert targets(nn.Mish(), image()) == ["aten.mish.default"]
    classes = torch.zeros(4, dtype=torch.long)
    loss = targets(nn.CrossEntropyLoss(), torch.rand(4, 5), classes)
    assert loss == ["aten.cross_entropy_loss.default"]


def test_numbers_among_the_inputs_are_baked_in() -> None:
    traced = trace(ConvNorm(), (image(), 3.0))
    assert traced.inputs == ("x", "factor")
    assert traced.nodes["mul"].args[1] == 3.0


def test_meta_tells_shape_and_dtype() -> None:
    traced = trace(ConvNorm(), (image(), 2.0))
    assert meta(traced.nodes["mul"]) == TensorMeta((2, 4, 7, 7), "float32")


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.multinomial(x.flatten(), 1)


def test_draws_that_depend_on_values_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="multinomial"):
        trace(Noisy(), (image(),))


class Dropouts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(9, 9)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.linear(F.dropout(x, 0.3)), 0.8)


def test_a_split_dropout_draws_what_the_module_draws_from_the_same_seed() -> None:
    module, x = Dropouts(), image()
    traced = trace(module, (x,))
    assert "native_dropout" not in "".join(targets(module, x))
    for seed in (1, 2):
        got = traced.run(state_of(module), (x,), seed)[traced.outputs[0]]
        for dtype in (torch.float32, torch.float64):
            torch.manual_seed(seed)
            expected = copy.deepcopy(module).to(dtype)(x.to(dtype)).detach()
            assert torch.allclose(got.to(dtype), expected, atol=1e-5)
            assert torch.equal(got == 0, expected == 0)


def test_the_mask_of_a_dropout_does_not_depend_on_its_operand() -> None:
    traced = trace(Dropouts(), (image(),))
    masks = [node for node in traced.nodes.values() if str(node.target) == MASK]
    assert len(masks) == 2
    assert all(
        source.op != "placeholder" and not source.all_input_nodes
        for mask in masks
        for source in mask.all_input_nodes
    )


def test_a_dropout_of_everything_is_zero() -> None:
    traced = trace(nn.Dropout(1.0), (image(),))
    assert not traced.run({}, (image(),), 3)[traced.outputs[0]].any()


def test_dropout_of_nothing_is_no_random_operator() -> None:
    assert "dropout" not in "".join(targets(nn.Dropout(0.0), image()))


def test_attention_stays_whole_and_is_random_only_with_dropout() -> None:
    def attend(dropout: float) -> list[str]:
        class Attention(nn.Module):
            def forward(self, q: Tensor) -> Tensor:
                return F.scaled_dot_product_attention(q, q, q, dropout_p=dropout)

        return targets(Attention(), torch.rand(2, 3, 4, 5))

    assert attend(0.0) == ["aten.scaled_dot_product_attention.default"]
    with pytest.raises(UnsupportedError, match="scaled_dot_product_attention"):
        attend(0.1)


def test_a_recurrent_network_of_many_steps_is_one_operator_and_computes_the_same() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(3, 4, 2)

        def forward(self, x: Tensor, h: Tensor) -> Tensor:
            return self.gru(x, h)[0]

    module, inputs = Last(), (torch.rand(64, 2, 3), torch.rand(2, 2, 4))
    traced = trace(module, inputs)
    operators = [str(n.target) for n in traced.nodes.values() if n.op == "call_function"]
    assert operators[0] == "kernelassay.gru.default"
    assert len(operators) == 2
    output = traced.run(state_of(module), inputs)[traced.outputs[0]]
    assert torch.equal(output, module(*inputs))


def test_a_dropout_between_recurrent_layers_is_random() -> None:
    module = nn.RNN(3, 4, 2, dropout=0.5)
    with pytest.raises(UnsupportedError, match="rnn_tanh"):
        trace(module, (torch.rand(5, 2, 3), torch.zeros(2, 2, 4)))
    trace(module.eval(), (torch.rand(5, 2, 3), torch.zeros(2, 2, 4)))


def test_a_tensor_attribute_that_the_forward_changes_is_traced() -> None:
    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = torch.full((2, 3), 7.0)

        def forward(self, x: Tensor) -> Tensor:
            self.hidden = torch.tanh(x + self.hidden)
            return self.hidden * 2

    x = torch.rand(2, 3)
    traced = trace(Stateful(), (x,))
    outputs = traced.run({}, (x,))
    assert torch.equal(outputs[traced.outputs[0]], torch.tanh(x + 7.0) * 2)


def test_a_frozen_floating_point_tensor_is_refused() -> None:
    table = torch.rand(3)

    class Frozen(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * table

    with pytest.raises(UnsupportedError, match=r"froze a floating-point tensor of shape \(3,\)"):
        trace(Frozen(), (torch.rand(2, 3),))


def test_a_buffer_that_is_not_saved_is_fed_from_the_state_or_from_the_trace() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.tril(torch.ones(3, 3)), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.mask

    x = (torch.ones(3, 3),)
    traced = trace(Masked(), x)
    assert torch.equal(traced.run({}, x)["mul"], torch.tril(torch.ones(3, 3)))
    assert torch.equal(traced.run({"mask": torch.zeros(3, 3)}, x)["mul"], torch.zeros(3, 3))


def test_a_module_with_data_dependent_control_flow_is_a_problem_error() -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(ProblemError, match=r"torch\.export refuses"):
        trace(Branch(), (image(),))


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(ProblemError, match=r"conv\.weight"):
        trace(ConvNorm(), (image(), 2.0)).run({}, (image(), 2.0))


class Declared(nn.Module):
    """Tensors whose names are attributes of the class, too."""

    scale: Tensor | None = None

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.full((3,), 2.0)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_a_tensor_named_like_a_class_attribute_is_traced_or_refused_by_name() -> None:
    x = torch.rand(4, 3)
    module = Declared()
    hold_as_buffers(module)
    assert torch.equal(module(x), 2 * x)
    try:
        traced = trace(module, (x,))
    except UnsupportedError as error:
        assert "scale" in error.what or "constant" in error.what
    else:
        values = traced.run(state_of(module), (x,))
        assert torch.equal(values[traced.outputs[0]], 2 * x)


class Picks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.tensor([3, 1, 2]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.offsets


def test_tensors_that_the_graph_holds_follow_its_inputs_to_their_device() -> None:
    traced = trace(Picks(), (torch.rand(3),))
    values = traced.run({}, (torch.empty(3, device="meta"),))
    assert {value.device.type for value in values.values()} == {"meta"}
