"""The admission report tells of every problem what stands in for it, or where and why it ends."""

import json

import pytest

from kernelassay import admission
from kernelassay.admission import Admission, AdmissionOptions, admissions, reason_counts
from kernelassay.cli import invoke
from kernelassay.plan import GateOptions
from kernelassay.problem import read_problem
from kernelassay.session import user_cache
from kernelassay.suite import suite_problems

FILE = """
import torch
from torch import nn
rows = {rows}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        return {forward}
def get_inputs():
    return [torch.rand(rows, {columns})]
def get_init_inputs():
    return []
"""
FORWARDS = {
    "sorted": ("8", "64", "x.sort(1).values.cumsum(1).sort(0).values"),
    "logarithm": ("8", "64", "(x - 2).log()"),
    "broken": ("8", "64", "x @ x"),
    "dropped": ("1024", "65536", "nn.functional.dropout(x, 0.25) * 2"),
}


@pytest.fixture(scope="module")
def selected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("problems")
    for name, (rows, columns, forward) in FORWARDS.items():
        text = FILE.format(rows=rows, columns=columns, forward=forward)
        (folder / f"{name}.py").write_text(text)
    own = [p for p in suite_problems() if p.id == "suite/linear_bias_relu"]
    return (*own, *(read_problem(folder / f"{name}.py") for name in FORWARDS))


@pytest.fixture(scope="module")
def options():
    return AdmissionOptions(shrink=True, gate=GateOptions("brief", None, rewrites=False))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("session")


@pytest.fixture(scope="module")
def found(selected, options, store):
    done = list(admissions(selected, options, user_cache(), store))
    return {one.problem.split("/")[1]: one for one in done}


def test_an_admitted_problem_has_its_kernels_ops_and_worst_error(found):
    linear = found["linear_bias_relu"]
    assert linear.refused == linear.stage == ""
    assert [kernel.template for kernel in linear.kernels] == ["matmul", "pointwise"]
    assert all({"plain", "optimised"} <= set(kernel.styles) for kernel in linear.kernels)
    assert {"aten.mm.default", "aten.relu.default"} <= set(linear.ops)
    assert 0 < linear.worst_error < 5e-3
    assert linear.valid > 5
    assert linear.worst_input
    assert linear.shrink is None


@pytest.mark.parametrize(
    ("name", "stage", "words"),
    [
        ("sorted", "lower", "no kernel for: aten.sort.default"),
        ("logarithm", "shrink", "the output is not finite"),
        ("broken", "shrink", "the model fails on its inputs"),
    ],
)
def test_a_refused_problem_says_where_and_why(found, name, stage, words):
    assert found[name].stage == stage
    assert words in found[name].refused


def test_a_dropout_is_a_mask_from_the_seed_and_a_kernel(found):
    dropped = found["dropped"]
    assert dropped.refused == ""
    assert [kernel.template for kernel in dropped.kernels] == ["pointwise"]
    assert dropped.worst_error < 1e-6


def test_what_was_scaled_is_told_with_its_place(found):
    sizes = {size.name: (size.before, size.place) for size in found["dropped"].shrink.sizes}
    assert sizes.pop("rows") == (1024, "module")
    ((place, told),) = sizes.items()
    assert place.startswith("@11:") and told == (65536, "code")
    assert found["dropped"].shrink.spread > 0


def test_reasons_are_counted_by_operator_and_by_kind():
    def refused(stage, reason):
        return Admission("p/x", 1, True, None, (), 0, 0, None, "", stage, reason, 0.0)

    counts = reason_counts(
        [
            refused("lower", "no kernel for: aten.sort.default; aten.topk.default"),
            refused("lower", "p/x: no kernel for: aten.sort.default"),
            refused("gate", "not admitted on input official-0: k00 strays 1.2e-03 from float64"),
            refused("gate", "not admitted on input ramp-s1: k00 strays 7.0e-01 from float64"),
            refused("", ""),
        ]
    )
    assert counts == {
        "gate: not admitted on input X: k00 strays N from float64": 2,
        "lower: aten.sort.default": 2,
        "lower: aten.topk.default": 1,
    }


def test_a_second_run_takes_up_the_stored_results(found, selected, options, store, monkeypatch):
    monkeypatch.setattr(admission, "admission", None)
    again = {
        one.problem.split("/")[1]: one for one in admissions(selected, options, user_cache(), store)
    }
    assert again == found


def test_other_options_are_not_taken_from_the_store(selected, options, store, found):
    other = AdmissionOptions(shrink=True, gate=GateOptions("brief", None, rewrites=True))
    assert admission._stored(store, selected[0], options) is not None
    assert admission._stored(store, selected[0], other) is None


def test_a_damaged_record_is_found_again(selected, options, store, found):
    path = admission._path(store, selected[0])
    kept = path.read_text()
    for damaged in ("", "[]", kept.replace('"seconds"', '"minutes"'), kept[: len(kept) // 2]):
        path.write_text(damaged)
        assert admission._stored(store, selected[0], options) is None
    path.write_text(kept)
    assert admission._stored(store, selected[0], options) is not None


def test_the_command_prints_a_document_with_a_summary(selected, store, capsys):
    unfit = next(p for p in selected if p.id.endswith("sorted"))
    assert invoke(["admit", "--problem", unfit.path, "--json", "--jobs", "1"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["admitted"], data["problems"]) == (0, 1)
    assert data["reasons"] == {"lower: aten.sort.default": 1}
    assert data["results"][0]["stage"] == "lower"


def test_mutants_are_counted_by_family_style_rule_and_problem_and_close(store, capsys):
    asked = ["admit", "suite/relu", "suite/argmin_last", "--mutants", "--session", str(store)]
    asked += ["--style", "plain", "--style", "optimised", "--jobs", "1"]
    assert invoke([*asked, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    totals = data["mutants"]
    by_problem = {problem: sum(n.values()) for problem, n in totals["problem"].items()}
    for by in ("family", "style", "rule", "problem"):
        assert sum(sum(n.values()) for n in totals[by].values()) == sum(by_problem.values())
    assert set(totals["style"]) == {"plain", "optimised"}
    # The census generates what `mutants` lists.
    for problem, count in by_problem.items():
        assert invoke(["mutants", problem, *asked[6:10], "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["data"]) == count
    # A stored census is printed again, as tables.
    assert invoke(asked) == 0
    printed = capsys.readouterr().out
    distinct = sum(n["distinct"] for n in totals["family"].values())
    assert f"mutants: {distinct} distinct of {sum(by_problem.values())}, on 2 problems" in printed
    assert "rules that never fired" in printed and "tie-break" not in printed.split("fired")[1]
