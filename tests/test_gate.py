"""The gate: inputs that cannot judge are set aside, kernels that are wrong are refused."""

import numpy as np
import pytest

from kernelassay import cell, gate
from kernelassay.cell import Cell
from kernelassay.kernel import Finding
from kernelassay.oracle import grade

REFERENCE = np.array([1.0, 100.0])


def result(name, error, *, outcome=cell.OK, findings=()):
    verdict = grade(REFERENCE + np.array([error, 0.0]), REFERENCE) if outcome == cell.OK else None
    return Cell(name, "i", outcome, "why", True, True, 0, findings, "", verdict, verdict, verdict)


def refusal(*cells, official=False, magnitude=100.0, reference_error=0.0):
    return gate.refusal(
        cells, official=official, magnitude=magnitude, reference_error=reference_error
    )


def test_on_official_inputs_a_kernel_may_stray_as_a_network_makes_the_reference_stray():
    cell = result("original/k", 5e-4)
    assert "strays" in refusal(cell, official=True, reference_error=5e-5)
    assert refusal(cell, official=True, reference_error=1e-4) == ""


def test_a_kernel_that_agrees_is_admitted():
    assert refusal(result("original/k", 1e-5), result("benign/k/plain", 1e-5), official=True) == ""


def test_official_inputs_bound_the_critical_tolerance_of_every_correct_kernel():
    for name in ("original/k", "benign/k/plain"):
        assert "strays" in refusal(result(name, 1e-3), official=True)


def test_elsewhere_rounding_is_judged_by_the_magnitude_that_occurs():
    assert refusal(result("original/k", 1e-3), magnitude=100.0) == ""
    assert "is off by" in refusal(result("original/k", 1e-3), magnitude=1.0)


def test_an_input_that_amplifies_the_references_own_rounding_refuses_nobody():
    assert refusal(result("original/k", 1e-1), magnitude=1.0, reference_error=2e-3) == ""


def test_a_benign_variant_that_strays_makes_the_input_unfit_not_the_problem():
    stray = result("benign/k/plain", 1e-1)
    assert refusal(stray, magnitude=1.0) == ""
    assert "a correct kernel strays" in gate.objection(0.0, gate.worst_error([stray]))


@pytest.mark.parametrize("outcome", [cell.CRASH, cell.TIMEOUT, cell.LAUNCH_FAILURE])
def test_a_correct_kernel_must_end(outcome):
    assert outcome in refusal(result("benign/k/plain", 0.0, outcome=outcome))


def test_a_finding_on_a_correct_kernel_refuses_the_problem():
    race = (Finding("race-shared", 1, "block 0"),)
    assert "race-shared" in refusal(result("benign/k/plain", 0.0, findings=race))


def test_references_that_disagree_make_the_input_unfit():
    assert "reference strays" in gate.objection(6e-3, 0.0)
    assert gate.objection(4e-3, 4e-3) == ""


def test_a_correct_kernel_that_is_not_finite_is_refused():
    broken = result("original/k", np.nan)
    assert "is off by" in refusal(broken)
