"""Convolutions in both styles agree with float64 and are clean in the checked build."""

from __future__ import annotations

import pytest

from kernelassay.compile import parse_launcher
from kernelassay.errors import UnsupportedError
from kernelassay.kernel import OPTIMISED, PLAIN
from kernelassay.substrate import bind
from kernelassay.substrate.ops.convolution import staged_bytes
from tests.substrate.harness import Bench
from tests.substrate.op_cases import CONVOLUTION
from tests.substrate.opcheck import check


@pytest.mark.parametrize("style", (PLAIN, OPTIMISED))
@pytest.mark.parametrize("name", CONVOLUTION)
def test_convolutions_agree_with_float64_and_have_no_findings(
    name: str, style: str, bench: Bench
) -> None:
    check(CONVOLUTION[name], style, bench)


def test_a_kernel_past_the_shared_memory_of_a_block_is_refused() -> None:
    case = CONVOLUTION["2d"]
    with pytest.raises(UnsupportedError, match="shared memory"):
        bind(case.call(), case.trace(((1, 1, 120, 120), (1, 1, 110, 110))))


@pytest.mark.parametrize("name", CONVOLUTION)
def test_the_optimised_source_asks_for_the_shared_memory_that_is_checked(name: str) -> None:
    case = CONVOLUTION[name]
    call = case.call()
    for shapes in case.shapes:
        scalars = bind(call, case.trace(shapes))
        (step,) = parse_launcher(call.sources[OPTIMISED]).plan(scalars).steps
        assert step.shared_bytes == staged_bytes(call.template, scalars)
