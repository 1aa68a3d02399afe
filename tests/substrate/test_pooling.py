"""Pooling in both styles agree with float64 and are clean in the checked build."""

from __future__ import annotations

import pytest
import torch

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.substrate import bind, lower
from kernelassay.trace import trace
from tests.substrate.harness import Bench
from tests.substrate.op_cases import ADAPTIVE, POOLING
from tests.substrate.opcheck import Function, check


@pytest.mark.parametrize("style", (PLAIN, OPTIMISED))
@pytest.mark.parametrize("name", POOLING)
def test_pooling_agree_with_float64_and_have_no_findings(
    name: str, style: str, bench: Bench
) -> None:
    check(POOLING[name], style, bench)


@pytest.mark.parametrize("style", (PLAIN, OPTIMISED))
@pytest.mark.parametrize("name", ADAPTIVE)
def test_adaptive_pooling_agrees_with_float64_and_has_no_findings(
    name: str, style: str, bench: Bench
) -> None:
    check(ADAPTIVE[name], style, bench)


def test_live_max_pool_indices_are_named_as_unsupported() -> None:
    module = Function(lambda x: torch.nn.functional.max_pool2d(x, 2, return_indices=True))
    with pytest.raises(UnsupportedError, match="result 1 is used"):
        lower(trace(module, (torch.randn(1, 1, 4, 4),)))


def test_one_dimensional_pooling_gets_a_one_dimensional_kernel() -> None:
    scalars = bind(POOLING["max 1d"].call(), POOLING["max 1d"].trace(((2, 3, 17),)))
    assert scalars == {
        "planes": 6, "in_length": 17, "out_length": 8,
        "kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2,
    }  # fmt: skip
