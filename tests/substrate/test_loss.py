"""Losses in both styles agree with float64 and are clean in the checked build."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.substrate import lower
from kernelassay.trace import trace
from tests.substrate.harness import Bench
from tests.substrate.op_cases import LOSS
from tests.substrate.opcheck import Function, check


@pytest.mark.parametrize("style", (PLAIN, OPTIMISED))
@pytest.mark.parametrize("name", LOSS)
def test_losses_agree_with_float64_and_have_no_findings(
    name: str, style: str, bench: Bench
) -> None:
    check(LOSS[name], style, bench)


@pytest.mark.parametrize(
    "options", ({"reduction": "sum"}, {"label_smoothing": 0.1}), ids=lambda o: next(iter(o))
)
def test_other_cross_entropies_are_named_as_unsupported(options: dict[str, Any]) -> None:
    module = Function(lambda x, t: torch.nn.functional.cross_entropy(x, t, **options))
    with pytest.raises(UnsupportedError, match="cross entropy with"):
        lower(trace(module, (torch.randn(3, 5), torch.tensor([0, 1, 4]))))
