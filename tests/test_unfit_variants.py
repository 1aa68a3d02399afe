"""What becomes of correct kernels that full size asks too much of."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from kernelassay import cell, oracle
from kernelassay.cell import Cell
from kernelassay.execute.outputs import without_output
from kernelassay.execute.worker import UnitResult
from kernelassay.gate_inputs import _drop_unfit
from kernelassay.kernel import Finding
from kernelassay.population import CorrectKernels

FACTS = SimpleNamespace(output_dtypes=("float32",), reference_error=1e-6)


def left(found: Cell, *, official: bool = True) -> tuple[str, int]:
    """Why a variant with such a cell is not used, and how many cells the gate goes on with."""
    base = {"benign": [{"id": found.candidate, "unsupported": ""}]}
    correct = CorrectKernels({}, (SimpleNamespace(id=found.candidate),), ())
    unit = UnitResult(facts=FACTS, cells=[found])
    after = _drop_unfit(base, correct, unit, official=official)
    assert len(after.benign) == len(unit.cells)
    return base["benign"][0]["unsupported"], len(unit.cells)


def ended(outcome: str) -> Cell:
    return without_output("benign/x", "official-0", outcome, "")


def straying(error: float) -> Cell:
    """A variant whose output is off by so much where the exact result is 0."""
    verdict = oracle.grade(np.array([error]), np.array([0.0]))
    return replace(ended(cell.OK), seen=verdict, poisoned=verdict, exact=verdict)


@pytest.mark.parametrize(
    "outcome", [cell.TIMEOUT, cell.LAUNCH_FAILURE, cell.OUT_OF_MEMORY, cell.INFRASTRUCTURE]
)
def test_a_variant_that_asks_for_too_much_is_left_out(outcome):
    assert left(ended(outcome)) == (f"ends with {outcome} at official sizes", 0)


@pytest.mark.parametrize("outcome", [cell.CRASH, cell.ILLEGAL_ADDRESS, cell.MISALIGNED_ADDRESS])
def test_a_variant_that_faults_is_judged(outcome):
    assert left(ended(outcome)) == ("", 1)


def test_a_variant_that_rounds_too_often_for_the_size_is_left_out():
    reason = "strays 2.00e-04 from float64 (limit 0.0001) at official sizes"
    assert left(straying(2e-4)) == (reason, 0)
    assert left(straying(5e-5)) == ("", 1)


def test_a_variant_is_not_left_out_for_what_only_a_wrong_kernel_does():
    assert left(straying(np.nan)) == ("", 1)
    flagged = replace(straying(2e-4), findings=(Finding("input-write", 1, ""),))
    assert left(flagged) == ("", 1)


def test_on_inputs_of_other_groups_a_variant_that_strays_is_judged():
    assert left(straying(2e-4), official=False) == ("", 1)
