"""What becomes of correct kernels that do not end at the sizes of a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kernelassay import cell
from kernelassay.execute.outputs import without_output
from kernelassay.execute.worker import UnitResult
from kernelassay.gate_inputs import _drop_overtaxed
from kernelassay.population import CorrectKernels


def left(outcome: str) -> tuple[str, int]:
    """Why a benign variant is not used that ends so, and the cells that the gate goes on with."""
    base = {"benign": [{"id": "benign/x", "unsupported": ""}]}
    correct = CorrectKernels({}, (SimpleNamespace(id="benign/x"),), ())
    unit = UnitResult(cells=[without_output("benign/x", "official-0", outcome, "")])
    _drop_overtaxed(base, correct, unit)
    return base["benign"][0]["unsupported"], len(unit.cells)


@pytest.mark.parametrize("outcome", [cell.TIMEOUT, cell.LAUNCH_FAILURE, cell.OUT_OF_MEMORY])
def test_a_variant_that_asks_for_too_much_is_left_out(outcome):
    assert left(outcome) == (f"ends with {outcome} at official sizes", 0)


@pytest.mark.parametrize("outcome", [cell.CRASH, cell.ILLEGAL_ADDRESS, cell.MISALIGNED_ADDRESS])
def test_a_variant_that_faults_is_judged(outcome):
    assert left(outcome) == ("", 1)
