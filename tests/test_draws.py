"""Random numbers of a forward pass are the same for both references and the traced graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from kernelassay.draws import drawing
from kernelassay.trace import trace


class Noisy(nn.Module):
    """Adds fresh numbers, after a draw that nothing reads."""

    def forward(self, x: Tensor) -> Tensor:
        torch.randn(5)
        return x + torch.randn(x.shape) + torch.rand_like(x)


def draw(seed: int, dtype: torch.dtype) -> Tensor:
    with drawing(seed):
        return Noisy()(torch.zeros(3, 4, dtype=dtype))


def test_a_seed_names_the_draws_and_pytorchs_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    assert torch.equal(draw(1, torch.float32), draw(1, torch.float32))
    assert not torch.equal(draw(1, torch.float32), draw(2, torch.float32))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_both_precisions_draw_the_same_numbers(double_precision: None) -> None:
    wide = draw(3, torch.float64)
    torch.set_default_dtype(torch.float32)
    assert wide.dtype == torch.float64
    assert torch.allclose(wide, draw(3, torch.float32).double(), atol=1e-6)


def test_the_graph_draws_what_the_module_draws() -> None:
    traced = trace(Noisy(), (torch.zeros(3, 4),))
    output = traced.run({}, (torch.zeros(3, 4),), seed=9)[traced.outputs[0]]
    assert torch.equal(output, draw(9, torch.float32))
