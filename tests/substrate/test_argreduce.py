"""Arg-reductions in both styles agree with float64 and are clean in the checked build."""

from __future__ import annotations

import pytest
import torch

from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.substrate import lower
from kernelassay.trace import trace
from tests.substrate.harness import Bench
from tests.substrate.op_cases import ARGREDUCE
from tests.substrate.opcheck import Function, check


@pytest.mark.parametrize("style", (PLAIN, OPTIMISED))
@pytest.mark.parametrize("name", ARGREDUCE)
def test_arg_reductions_agree_with_float64_and_have_no_findings(
    name: str, style: str, bench: Bench
) -> None:
    check(ARGREDUCE[name], style, bench)


def test_a_max_whose_indices_are_unused_needs_no_index() -> None:
    (call,) = lower(trace(Function(lambda x: torch.max(x, 1)[0]), (torch.randn(3, 5),)))
    assert call.template == "amax"
