"""Ceilings: where correct kernels begin to fail a tolerance, located and told."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kernelassay import cell
from kernelassay.analysis import ceiling
from kernelassay.analysis.ceiling import (
    FAILS,
    LOCATED,
    NEVER,
    PRECISION,
    SAME_SIGN,
    SIGN_MIXED,
    UNDEFINED,
    Judged,
    ProblemCeilings,
    draw_limited,
    judged,
    locate,
)
from kernelassay.cli import invoke
from kernelassay.errors import DeviceError, UnsupportedError, UsageError
from kernelassay.execute.bench import InputFacts
from kernelassay.execute.outputs import without_output
from kernelassay.execute.worker import UnitResult
from kernelassay.input_values import TRANSFORMS, transformed
from kernelassay.problem import load, read_problem
from kernelassay.report.tolerance import print_ceilings, scale
from kernelassay.suite import suite_problems
from tests.test_score import result

SCALES = st.floats(1.0, 1e30)


class Kernels:
    """Correct kernels that fail beyond one scale, on references finite up to another."""

    def __init__(self, fails_beyond=math.inf, finite_to=math.inf):
        self.fails_beyond, self.finite_to = fails_beyond, finite_to
        self.tried = []

    def __call__(self, at):
        self.tried.append(at)
        if at > self.finite_to:
            return None
        return Judged("k", 1.0 if at > self.fails_beyond else 0.0, "", 0.0, 1)


@given(SCALES)
def test_a_ceiling_is_located_to_the_stated_precision(threshold):
    kernels = Kernels(threshold, 1e38)
    found = locate(SIGN_MIXED, kernels, 1e-2)
    assert found.status == LOCATED
    assert found.scale <= threshold < found.beyond <= found.scale * PRECISION
    assert found.first.error == 1.0
    assert found.tried == len(kernels.tried) <= math.log10(threshold) + 9
    assert locate(SIGN_MIXED, Kernels(threshold, 1e38), 1e-2) == found


@given(SCALES)
def test_kernels_that_never_fail_are_tried_to_where_nothing_is_finite(end):
    found = locate(SIGN_MIXED, Kernels(finite_to=end), 1e-2)
    assert (found.status, found.first) == (NEVER, None)
    assert found.scale <= end < found.beyond <= found.scale * PRECISION


@given(SCALES, st.floats(1.1, 9.0))
def test_a_kernel_that_fails_just_before_nothing_is_finite_is_found(threshold, room):
    found = locate(SIGN_MIXED, Kernels(threshold, threshold * room), 1e-2)
    assert found.scale <= threshold
    if found.status == LOCATED:
        assert threshold < found.beyond <= found.scale * PRECISION
    else:  # the failing scales lie between two that were tried
        assert found.beyond > threshold * room


def test_what_fails_or_is_not_finite_from_the_start_says_so():
    assert locate(SAME_SIGN, Kernels(0.5), 1e-2).status == FAILS
    assert locate(SAME_SIGN, Kernels(finite_to=0.5), 1e-2).status == UNDEFINED


@given(st.floats(1.0, 1e6))
def test_no_scale_beyond_a_limit_is_tried(limit):
    kernels = Kernels()
    found = locate(SIGN_MIXED, kernels, 1e-2, limit)
    assert max(kernels.tried) == found.scale == pytest.approx(max(1.0, limit))
    assert (found.status, found.beyond) == (NEVER, None)
    assert scale(found).startswith("at least")


FACTS = InputFacts("x", "", (), (), True, 1e-7, 1.0, "")


def test_the_kernel_that_strays_most_is_named_and_all_that_fail_are_counted():
    fixed = [result("original/k00/optimised", "x", 0.02), result("control/nan", "x", float("nan"))]
    cells = [result("benign/k00/plain", "x", 0.3), result("benign/k00/other", "x", 0.0)]
    found = judged(UnitResult(FACTS, fixed=fixed, cells=cells), 1e-3)
    assert (found.kernel, found.failing, found.outcome) == ("benign/k00/plain", 2, "")
    assert found.error == pytest.approx(0.15)
    assert found.reference_error == 1e-7
    stopped = without_output("benign/k00/slow", "x", cell.TIMEOUT, "")
    found = judged(UnitResult(FACTS, fixed=fixed, cells=[*cells, stopped]), 1e-3)
    assert (found.kernel, found.outcome) == ("benign/k00/slow", cell.TIMEOUT)
    assert found.error == math.inf


def test_an_input_that_cannot_be_measured_is_no_verdict():
    with pytest.raises(UnsupportedError, match="too much"):
        judged(UnitResult(rejected="too much"), 1e-2)
    gone = without_output("benign/k00/plain", "x", cell.INFRASTRUCTURE, f"{cell.ENDED}SIGKILL")
    with pytest.raises(DeviceError):
        judged(UnitResult(FACTS, cells=[gone]), 1e-2)
    endless = InputFacts("x", "", (), (), False, 0.0, 1.0, "the reference is not finite")
    assert judged(UnitResult(endless, rejected="the reference is not finite"), 1e-2) is None


def test_the_lowest_ceilings_are_named(capsys):
    def found(problem, *scales):
        values = (
            locate(kind, Kernels(at, 1e38), 1e-2)
            for kind, at in zip((SIGN_MIXED, SAME_SIGN), scales, strict=True)
        )
        return ProblemCeilings(problem, (), True, 1e-2, PRECISION, 1, 3, tuple(values), "", 1.0)

    refused = ProblemCeilings("suite/r", (), True, 1e-2, PRECISION, 1, 0, (), "loops", 1.0)
    results = [found("suite/p", 400.0, math.inf), found("suite/q", 20.0, 0.5), refused]
    print_ceilings(Console(width=150), results, 1e-2)
    lines = capsys.readouterr().out.splitlines()
    mixed, same = (next(x for x in lines if x.startswith(k)) for k in (SIGN_MIXED, SAME_SIGN))
    assert mixed.startswith("sign-mixed: of 2 problems 2 located, 0 never")
    assert mixed.index("suite/q 19.") < mixed.index("suite/p 3")
    assert "0 located, 1 never, 1 fails at scale 1" in same and "lowest" not in same
    assert lines[-1] == "no ceiling: suite/r: loops"


def suite(name):
    return next(p for p in suite_problems() if p.id == f"suite/{name}")


def test_both_kinds_have_the_same_magnitudes_and_scale_as_the_batterys_inputs_do(tmp_path):
    problem = suite("matmul_square")
    assert draw_limited(problem, tmp_path, 1) == (0, 1)
    mixed = ceiling._Values(tmp_path, SIGN_MIXED, (0, 1)).at(300.0, 1)
    values = torch.load(mixed.transform.removeprefix("given:"))
    expected = transformed(load(problem).draw(1), TRANSFORMS["sign-mixed-300"], 1)
    assert all(map(torch.equal, values, expected))
    same = ceiling._Values(tmp_path, SAME_SIGN, (0, 1)).at(300.0, 1)
    unsigned = torch.load(same.transform.removeprefix("given:"))
    assert all(torch.equal(a, b.abs()) for a, b in zip(unsigned, expected, strict=True))
    assert ceiling._Values(tmp_path, SIGN_MIXED, (0, 1)).at(1e39, 1) is None


def test_what_must_stay_in_its_domain_does_not_scale(tmp_path):
    assert draw_limited(suite("cross_entropy_loss"), tmp_path, 1) == (0,)  # not the labels
    with pytest.raises(UnsupportedError, match="no input scales"):
        draw_limited(suite("kl_div_loss"), tmp_path, 1)  # two distributions


def test_the_command_locates_the_ceiling_of_a_mean(capsys):
    arguments = ["ceiling", "suite/mean_middle", "--tolerance", "1e-5", "--up-to", "2000"]
    assert invoke([*arguments, "--jobs", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "[1/1] suite/mean_middle: sign-mixed" in err
    (found,) = json.loads(out)["data"]
    mixed, same = found["ceilings"]
    assert (mixed["kind"], mixed["status"]) == (SIGN_MIXED, LOCATED)
    assert mixed["first"]["error"] > 1e-5 >= mixed["first"]["reference_error"]
    assert mixed["scale"] < mixed["beyond"] <= mixed["scale"] * found["precision"]
    assert (same["kind"], same["status"], same["scale"]) == (SAME_SIGN, NEVER, 2000.0)
    assert found["kernels"] >= 2


def test_a_problem_that_cannot_be_drawn_is_told_with_the_reason(tmp_path, capsys):
    path = tmp_path / "leaves.py"
    path.write_text(
        "import os\nimport torch\n\n\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x + 1\n\n\n"
        "def get_inputs():\n    os._exit(3)\n\n\ndef get_init_inputs():\n    return []\n"
    )
    assert invoke(["ceiling", "--problem", str(path)]) == 0
    assert "no ceiling: file/leaves: " in capsys.readouterr().out


def test_sizes_are_given_in_one_place(capsys):
    assert invoke(["ceiling", "suite/relu", "--shrink", "--set", "features=8"]) == 1
    assert invoke(["ceiling", "suite/relu", "--set", "features"]) == 1
    assert invoke(["ceiling", "suite/relu", "--set", "features=8²"]) == 1
    assert invoke(["ceiling", "suite/relu", "--set", "features=8,depth=2"]) == 1
    assert "has no size 'depth'" in capsys.readouterr().err


def test_a_setting_may_hold_several_sizes():
    from kernelassay.analysis.sizes import parse_settings, resized

    (setting,) = parse_settings(["rows=3,inner=5"])
    problem = resized(suite("matmul_rectangular"), setting)
    assert {size.name: size.value for size in problem.sizes} == {
        "rows": 3,
        "inner": 5,
        "columns": 64,
    }
    assert not problem.official_shape
    with pytest.raises(UsageError):
        resized(read_problem(problem.path), (("depth", 1),))
