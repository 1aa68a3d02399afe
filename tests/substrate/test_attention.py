"""Attention in both styles agree with float64 and are clean in the checked build."""

from __future__ import annotations

import pytest
import torch

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.substrate import lower
from kernelassay.trace import trace
from tests.substrate.harness import Bench
from tests.substrate.op_cases import ATTENTION
from tests.substrate.opcheck import Function, check


@pytest.mark.parametrize("style", (PLAIN, OPTIMISED))
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_agree_with_float64_and_have_no_findings(
    name: str, style: str, bench: Bench
) -> None:
    check(ATTENTION[name], style, bench)


def test_attention_with_a_given_scale_is_named_as_unsupported() -> None:
    module = Function(lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q, scale=2))
    with pytest.raises(UnsupportedError, match="with a scale"):
        lower(trace(module, (torch.randn(1, 2, 3, 4),)))
