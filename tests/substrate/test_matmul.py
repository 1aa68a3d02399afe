"""Matrix products in both styles agree with float64 and are clean in the checked build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN, Call
from kernelassay.substrate import bind, lower
from kernelassay.trace import trace
from tests.substrate.harness import Bench
from tests.substrate.op_cases import MATMUL
from tests.substrate.opcheck import Function, check


@pytest.mark.parametrize("style", (PLAIN, OPTIMISED))
@pytest.mark.parametrize("name", MATMUL)
def test_matrix_products_agree_with_float64_and_have_no_findings(
    name: str, style: str, bench: Bench
) -> None:
    check(MATMUL[name], style, bench)


def _lowered(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Call:
    (call,) = lower(trace(Function(function), tuple(torch.randn(shape) for shape in shapes)))
    return call


def test_a_transposed_weight_is_read_in_place() -> None:
    call = _lowered(torch.nn.functional.linear, (7, 17), (33, 17), (33,))
    assert dict(call.operands) == {"a": "tensors_0", "b": "tensors_1", "bias": "tensors_2"}


def test_a_transpose_under_a_batch_of_heads_is_read_in_place() -> None:
    call = _lowered(lambda q, k: q @ k.transpose(-1, -2), (2, 3, 7, 5), (2, 3, 9, 5))
    assert dict(call.operands)["b"] == "tensors_1"


def test_a_column_that_becomes_a_matrix_is_refused_by_the_vector_kernel() -> None:
    column = MATMUL["matrix-vector"]
    with pytest.raises(UnsupportedError, match="has 3 columns"):
        bind(column.call(), column.trace(((4, 5), (5, 3))))


def test_a_scaled_addmm_is_named_as_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="alpha or beta"):
        _lowered(lambda c, a, b: torch.addmm(c, a, b, beta=2.0), (3,), (2, 4), (4, 3))


def test_a_product_in_double_is_named_as_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="of float64"):
        _lowered(lambda a, b: torch.mm(a.double(), b.double()), (2, 3), (3, 4))
