"""Each kind of finding on a problem that has the flaw, and its absence on one that does not."""

import textwrap

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelassay.lint import KINDS, Options, lint
from kernelassay.lint.distance import count_underflown, distance
from kernelassay.oracle import AcceptanceRule, grade
from kernelassay.problem import read_problem

QUICK = Options(seconds=60.0, memory_bytes=4 << 30)


def source(forward, init="", inputs="torch.rand(4, 6) - 0.5", top=""):
    """A problem file: the bodies of ``forward`` and ``__init__``, and what the inputs are."""
    return "\n".join(
        [
            "import torch, os, time",
            "import torch.nn as nn",
            "import torch.nn.functional as F",
            top,
            "class Model(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *textwrap.indent(init or "pass", " " * 8).splitlines(),
            "    def forward(self, x, y=None):",
            *textwrap.indent(forward, " " * 8).splitlines(),
            "def get_inputs():",
            f"    return [{inputs}]",
            "def get_init_inputs():",
            "    return []",
            "",
        ]
    )


@pytest.fixture
def linted(tmp_path):
    """The report on a problem with this text."""

    def run(text, options=QUICK):
        path = tmp_path / "case.py"
        path.write_text(text)
        (report,) = lint([read_problem(path)], options)
        return report

    return run


def found(report, kind):
    return [finding for finding in report.findings if finding.kind == kind]


LINEAR = "self.fc = nn.Linear(6, 3)"
CLEAN = source("return 3 * self.fc(x)", LINEAR)

# kind, a text that has it, its severity, a text that does not
PAIRS = [
    ("not-loadable", source("return x", top="raise OSError('gone')"), "fatal", CLEAN),
    ("not-loadable", source("return x", "self.missing.weight"), "fatal", CLEAN),
    ("not-loadable", source("os._exit(7)"), "fatal", CLEAN),
    ("reference-raises", source("return x @ x"), "fatal", CLEAN),
    ("unfit-output", source("return x, x"), "fatal", CLEAN),
    ("unfit-output", source("return x[:0]"), "fatal", CLEAN),
    ("unfit-output", source("return x.argmax(1)"), "weak", CLEAN),
    ("unfit-output", source("return x > 0"), "weak", CLEAN),
    ("unfit-output", source("return x.to(torch.complex64)"), "fatal", CLEAN),
    ("nonfinite-reference", source("return x.log()"), "fatal", source("return x.abs().log()")),
    ("nonfinite-reference", source("return 1 / F.relu(x)"), "weak", source("return 1 / x")),
    (
        "random-output",
        source("return self.drop(3 * x)", "self.drop = nn.Dropout(0.5)"),
        "fatal",
        source("return self.drop(3 * x)", "self.drop = nn.Dropout(0.0)"),
    ),
    (
        "random-output",
        source("return 3 * x + torch.randn(4, 6)"),
        "fatal",
        source("return 3 * x + self.noise", "self.noise = torch.randn(4, 6)"),
    ),
    (
        "stateful-output",
        source("self.n += 1\nreturn x * self.n", "self.n = 1"),
        "weak",
        source("self.n += 1\nreturn x * 3", "self.n = 1"),
    ),
    ("fixed-input", source("return x * y", inputs="torch.rand(4), torch.ones(4)"), "weak", CLEAN),
    ("zeros-pass", source("return x * 1e-5"), "fatal", source("return x")),
    ("zeros-pass", source("return x * 1e-3"), "weak", source("return x")),
    (
        "copy-passes",
        source("return F.relu(x)", inputs="torch.rand(9)"),
        "fatal",
        source("return F.relu(x)"),
    ),
    ("copy-passes", source("return x + 1e-3"), "weak", source("return x + 1")),
    ("constant-passes", source("return 5 + 1e-5 * x"), "fatal", source("return 5 + x")),
    (
        "replay-passes",
        source("return x.mean(1) * torch.arange(4)", inputs="torch.rand(4, 4096) + 2"),
        "weak",
        source("return x.mean(1) * torch.arange(4)", inputs="torch.randn(4, 4096) * 99"),
    ),
    (
        "imprecise-reference",
        source("return ((x + 1e7) - 1e7) * 3"),
        "fatal",
        source("return ((x + 1e0) - 1e0) * 3"),
    ),
    ("imprecise-reference", source("return (x + 3e4) - 3e4"), "weak", source("return x + 3e4")),
    ("underflow", source("return x * 1e-50"), "fatal", source("return x * 1e-30")),
    (
        "underflow",
        source("return torch.cat((x * 1e-42, x[:2]))"),
        "weak",
        source("return torch.cat((x * 1e-30, x[:2]))"),
    ),
]


@pytest.mark.parametrize(
    ("kind", "flawed", "severity", "clean"), PAIRS, ids=[f"{i}-{p[0]}" for i, p in enumerate(PAIRS)]
)
def test_a_flaw_is_found_where_it_is_and_only_there(kind, flawed, severity, clean, linted):
    findings = found(linted(flawed), kind)
    assert [finding.severity for finding in findings] == [severity]
    assert found(linted(clean), kind) == []


def test_every_kind_of_finding_has_a_test():
    tested = {pair[0] for pair in PAIRS} | {"constant-output", "identity-parameter"}
    assert tested == set(KINDS)


def test_a_sound_problem_has_no_finding(linted):
    report = linted(CLEAN)
    assert (report.findings, report.skipped, report.unjudged) == ((), (), "")
    assert (report.inputs, report.shapes) == (5, "official")


def test_an_output_without_plain_values_is_unfit(linted):
    report = linted(source("return (3 * x).to_sparse()"))
    assert [(f.kind, f.severity) for f in report.findings] == [("unfit-output", "fatal")]
    assert "torch.sparse_coo" in report.findings[0].what


def test_a_module_that_cannot_be_moved_is_unjudged(linted):
    report = linted(source("return x", "self.to = lambda **_: 1 / 0"))
    assert (report.findings, report.unjudged) == ((), "ZeroDivisionError: division by zero")


# ---- constant outputs --------------------------------------------------------------------------


def parts(report, key):
    return {f.numbers[key] for f in found(report, "constant-output") if key in f.numbers}


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.zeros_like(x)",
        "x = x.amax(1, keepdim=True)\nreturn F.gelu(x - x.mean(1, keepdim=True))",
        "return F.group_norm(x[None], 2).mean((1, 2))",  # zero up to rounding
        "return x.softmax(1).sum(1)",  # one up to rounding
    ],
)
def test_an_output_that_ignores_its_inputs_is_constant_also_up_to_rounding(forward, linted):
    findings = found(linted(source(forward)), "constant-output")
    assert findings
    assert {finding.severity for finding in findings} == {"fatal"}
    assert all(f.numbers.get("variation_float64", 0.0) < 1e-14 for f in findings)


def test_a_small_but_real_variation_is_not_taken_for_rounding(linted):
    assert found(linted(source("return 1 + 1e-6 * x")), "constant-output") == []


def test_the_ignored_input_is_named(linted):
    report = linted(source("return x * 2 + 0 * y", inputs="torch.rand(4), torch.rand(4)"))
    (finding,) = found(report, "constant-output")
    assert (finding.severity, finding.numbers["input"]) == ("weak", 1)


def test_equal_elements_that_follow_the_input_are_a_weak_finding(linted):
    (finding,) = found(linted(source("return x.sum().expand(7)")), "constant-output")
    assert (finding.severity, finding.numbers["elements"]) == ("weak", 7)


def test_a_parameter_without_influence_is_named(linted):
    init = f"{LINEAR}\nself.norm = nn.BatchNorm1d(3)\nself.unused = nn.Parameter(torch.rand(2))"
    report = linted(source("return self.norm(self.fc(x))", init))
    # In train mode the normalisation takes away what a bias before it added.
    assert parts(report, "parameter") == {"fc.bias", "unused"}


def test_parameters_of_an_output_without_gradient_are_perturbed_too(linted):
    init = f"{LINEAR}\nself.unused = nn.Parameter(torch.rand(2))"
    report = linted(source("return (100 * self.fc(x)).round().long()", init))
    assert parts(report, "parameter") == {"unused"}


def test_a_tied_parameter_is_changed_in_all_its_places(linted):
    init = "self.a = nn.Linear(6, 6)\nself.b = nn.Linear(6, 6)\nself.b.weight = self.a.weight"
    report = linted(source("return self.b(x).argmax(1)", init))
    assert parts(report, "parameter") == {"a.bias"}


# ---- identity parameters -----------------------------------------------------------------------

IDENTITIES = [
    ("return 3 * self.n(x)", "self.n = nn.LayerNorm(6)", {"n.weight", "n.bias"}),
    ("return 3 * self.n(x)", "self.n = nn.BatchNorm1d(6)", {"n.weight", "n.bias"}),
    ("return 3 * self.n(x)", "self.n = nn.GroupNorm(2, 6)", {"n.weight", "n.bias"}),
    ("return 3 * self.p * x", "self.p = nn.Parameter(torch.ones(6))", {"p"}),
    ("return 3 * x / self.p.view(1, 6)", "self.p = nn.Parameter(torch.ones(6))", {"p"}),
    ("return 3 * x + self.p", "self.p = nn.Parameter(torch.zeros(6))", {"p"}),
    ("x = 3 * x\nx += self.p\nreturn x", "self.p = nn.Parameter(torch.zeros(6))", {"p"}),
    ("return 3 * self.fc(x)", f"{LINEAR}\nnn.init.zeros_(self.fc.bias)", {"fc.bias"}),
    ("return 3 * x * (1 + self.p)", "self.p = nn.Parameter(torch.zeros(6))", {"p"}),
    # The same values where they do matter:
    ("return 3 * x + self.p", "self.p = nn.Parameter(torch.ones(6))", set()),
    ("x = 3 * x\nx += self.p\nreturn x", "self.p = nn.Parameter(torch.ones(6))", set()),
    ("return 3 * x + self.p", "self.p = nn.Parameter(torch.rand(6))", set()),
    ("return x @ self.p + x[:, :1]", "self.p = nn.Parameter(torch.ones(6, 6))", set()),
    ("return 3 * x * self.p + self.p", "self.p = nn.Parameter(torch.ones(6))", set()),
    ("return 3 * x + self.p.exp()", "self.p = nn.Parameter(torch.zeros(6))", set()),
]


@pytest.mark.parametrize(("forward", "init", "names"), IDENTITIES)
def test_identity_parameters_are_those_whose_calls_do_nothing(forward, init, names, linted):
    findings = found(linted(source(forward, init)), "identity-parameter")
    assert {finding.numbers["parameter"] for finding in findings} == names
    assert {finding.severity for finding in findings} <= {"weak"}


# ---- numbers -----------------------------------------------------------------------------------


def test_the_positions_that_float32_gets_wrong_are_counted(linted):
    forward = "x = 3 * x\nx[0] = (x[0] + 1e8) - 1e8\nreturn x"
    (finding,) = found(linted(source(forward)), "imprecise-reference")
    # One row of six in each of the five inputs; every value below 2 is lost.
    assert (finding.numbers["past_0.01"], finding.numbers["elements"]) == (30, 120)
    assert 0.5 < finding.numbers["largest"] <= 1.5


def test_the_critical_tolerance_of_zeros_is_that_of_the_largest_element(linted):
    text = source("return x * 1e-3", inputs="torch.ones(4) + torch.rand(4) * 0")
    (finding,) = found(linted(text), "zeros-pass")
    assert finding.numbers["critical_tolerance"] == pytest.approx(1e-3 / (1 + 1e-3), rel=1e-6)


def test_integers_whose_neighbour_passes_are_counted(linted):
    (finding,) = found(
        linted(source("return torch.arange(98, 101) + 0 * x.long()[0, 0]")), "unfit-output"
    )
    assert finding.numbers["off_by_one_passes_at_0.01"] == 2  # from 99 on
    assert finding.numbers["off_by_one_passes_at_0.0001"] == 0


FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=False)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=20), st.sampled_from([1e-2, 1e-4]))
def test_the_distance_decides_as_allclose_and_as_the_oracle_do(pairs, tolerance):
    out, ref = (
        torch.tensor(column, dtype=torch.float32).double() for column in zip(*pairs, strict=True)
    )
    apart = distance(out, ref, [tolerance])
    verdict = grade(out.numpy(), ref.numpy())
    assert (apart.critical <= tolerance) == AcceptanceRule(tolerance).accepts(verdict)
    assert (apart.past[0] == 0) == (apart.critical <= tolerance)
    assert apart.past[0] <= apart.count
    if apart.critical < float("inf"):
        assert apart.critical == verdict.critical_tolerance
        # Beside the rounding of the rule itself, allclose agrees.
        assert torch.allclose(out, ref, atol=2 * tolerance, rtol=2 * tolerance) or (
            apart.critical > tolerance
        )


def test_nans_agree_only_if_they_may():
    values = torch.tensor([1.0, float("nan")])
    assert distance(values, values).critical == float("inf")
    assert distance(values, values, equal_nan=True).critical == 0.0


def test_what_is_zero_in_float64_too_does_not_underflow():
    single = torch.tensor([0.0, 0.0, 1e-40, 1.0])
    exact = torch.tensor([0.0, 1e-60, 1e-40, 1.0], dtype=torch.float64)
    assert count_underflown(single, exact) == 2
