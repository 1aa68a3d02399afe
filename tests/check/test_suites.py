"""Which files of inputs `check` reads: what `suite --export` writes, and ones written by hand."""

import json
from dataclasses import replace

import pytest

from kernelassay.check.suites import read_suite
from kernelassay.errors import UsageError
from kernelassay.inputs import InputSpec
from tests.check.conftest import suite_problem

SPEC = InputSpec("mine", "suite", 9, "sign-mixed:x2~ramp", (("features", 5),))
RELU = suite_problem("suite/relu")


def written(tmp_path, data):
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize("problem", ["suite/relu", {"id": "suite/relu", "shrunk": {}}])
@pytest.mark.parametrize("one", [SPEC.to_json(), {"spec": SPEC.to_json(), "detects": 3}])
def test_a_problem_and_an_input_may_be_bare_or_as_exported(tmp_path, problem, one):
    path = written(tmp_path, {"problem": problem, "inputs": [one]})
    assert read_suite(path, RELU) == (SPEC,)


def test_inputs_at_other_sizes_of_a_scaled_problem_are_refused(tmp_path):
    path = written(
        tmp_path,
        {"problem": {"id": RELU.id, "shrunk": {"features": 3}}, "inputs": [SPEC.to_json()]},
    )
    with pytest.raises(UsageError, match="at other sizes: features=3; here as written"):
        read_suite(path, RELU)
    assert read_suite(path, replace(RELU, shrunk=(("features", 3),))) == (SPEC,)
